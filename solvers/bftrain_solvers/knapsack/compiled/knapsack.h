/* Parts of the compiled knapsack. Its words are those of best_sizes.py: entries, kinds of rows, price, loss. */

#ifndef BFTRAIN_KNAPSACK_H
#define BFTRAIN_KNAPSACK_H

#include "compiled.h"

/* DECLINED: the problem needs too much work or memory, or its numbers are extreme; best_sizes.py has to solve it */
typedef enum { SOLVED = 0, DECLINED = 1 } Outcome;

#define NEVER ((i64)1 << 61)  /* a loss that no choice within reach has */
#define FORBIDDEN INT64_MIN   /* the entry of a size that is not allowed */
#define ENTRY_BITS 52         /* the same bounds as in value_grid.py, so that no product overflows */
#define PRODUCT_BITS 59
#define MARGIN 1e-9           /* numbers that differ by less may have been rounded differently */

/* The caller's memory, handed out from the beginning on. Nothing is allocated here, so nothing can leak. */
typedef struct {
    i64 *next, *end;
} Memory;

/* Return room for `count` numbers, or 0 if there is not enough; then nothing else fits either. */
i64 *take(Memory *memory, i64 count);

/* Rows with the same values that hold the same size: what holds for one of them is computed once. */
typedef struct {
    i64 rows, width; /* of the table */
    i64 count;       /* of kinds */
    i64 *of_row, *first, *copies, *held;
} Kinds;

/* Entries by kind and size: whole numbers, less 1 where the size changes; `exponent` is that of the grid's unit. */
typedef struct {
    i64 *entries;
    i64 weight, exponent;
} Grid;

/* Losses at a price of rise / run for a node, times run; the smallest and the largest size without a loss, by kind. */
typedef struct {
    i64 rise, run;
    i64 *losses, *least, *most;
    i64 least_sum, most_sum;
} Price;

/* Sizes that may be in a best plan. Those of kind k have the places start[k] .. start[k + 1] - 1. */
typedef struct {
    i64 *start, *size, *loss;
    i64 budget; /* no best plan loses more */
} Candidates;

Outcome find_kinds(
    Memory *memory, const double *values, const i64 *numbers, const i64 *present, i64 rows, i64 width, Kinds *kinds);
Outcome make_grid(Memory *memory, const double *values, const Kinds *kinds, Grid *grid);

void compute_losses(const Grid *grid, const Kinds *kinds, Price *price);
Outcome find_price(Memory *memory, const Grid *grid, const Kinds *kinds, i64 pool, Price *price);

i64 smallest_known_loss(const Price *price, const Kinds *kinds, i64 pool, i64 idle, const i64 *grown);
Outcome find_candidates(
    Memory *memory, const Price *price, const Kinds *kinds, i64 pool, i64 known, Candidates *candidates);

Outcome divide(
    Memory *memory, const Price *price, const Kinds *kinds, i64 pool, const Candidates *candidates, i64 *sizes);

/* Described at its definition */
EXPORT int bftrain_best_sizes(
    const double *values, i64 rows, i64 width, const i64 *present, const i64 *numbers, i64 pool, i64 *sizes, i64 *room,
    i64 numbers_of_room, i64 *last_price);

#endif
