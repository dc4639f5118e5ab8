/* The multiple-choice knapsack of best_sizes.py, compiled: one call chooses a size for each row of a table.

   The answer is the same to the last node, because the rule for ties leaves one: the largest sum of entries, then fewest
   changes, then fewest nodes, then more for earlier rows. At a price for which the rows want about as many nodes as
   there are, each size has a loss; sizes that lose more than a known plan are left out; the rest is divided by a table.
   All arithmetic is exact, in whole numbers. No function keeps anything from one call to the next. */

#include "knapsack.h"

#include <string.h>

#define MOST_ROWS 20000
#define TIMES_TABLE 10 /* the least memory per number of the table: for entries, losses, edges and candidates */

/* Give each kind its best size if the pool has nodes for all. */
static Outcome serve_all(const Grid *grid, const Kinds *kinds, i64 pool, i64 *best, i64 *sizes) {
    i64 wanted = 0;
    for (i64 kind = 0; kind < kinds->count; kind++) {
        const i64 *entries = grid->entries + kind * kinds->width;
        best[kind] = 0;
        for (i64 size = 1; size < kinds->width; size++)
            best[kind] = entries[size] > entries[best[kind]] ? size : best[kind];
        wanted += best[kind] * kinds->copies[kind];
    }
    if (wanted > pool)
        return DECLINED;
    for (i64 row = 0; row < kinds->rows; row++)
        sizes[row] = best[kinds->of_row[row]];
    return SOLVED;
}

/* Give sizes without a loss, the larger ones to the first rows. SOLVED if no node is left. `grown` counts, by kind, the
   rows with the larger size, and `idle` is how many nodes are left. */
static Outcome divide_without_loss(
    const Price *price, const Kinds *kinds, i64 pool, i64 *sizes, i64 *grown, i64 *idle) {
    i64 left = pool - price->least_sum, next = 0;
    memset(grown, 0, (size_t)kinds->count * sizeof *grown);
    for (i64 row = 0; row < kinds->rows; row++)
        sizes[row] = price->least[kinds->of_row[row]];
    for (; next < kinds->rows; next++) {
        i64 kind = kinds->of_row[next], step = price->most[kind] - price->least[kind];
        if (step > left)
            break;
        sizes[next] += step;
        left -= step;
        grown[kind] += step > 0;
    }
    *idle = left;
    if (left == 0)
        return SOLVED;
    if (next == kinds->rows || price->losses[kinds->of_row[next] * kinds->width + sizes[next] + left])
        return DECLINED;
    sizes[next] += left; /* the first rows have all they can, the next one what is left: no best plan comes before */
    return SOLVED;
}

/* The price that was found last, which is usually right again; all 0 if there is none. */
typedef struct {
    i64 rise, run, exponent, weight;
} LastPrice;

static Outcome price_nodes(
    Memory *memory, const Grid *grid, const Kinds *kinds, i64 pool, LastPrice *last, Price *price) {
    i64 width = kinds->width;
    price->losses = take(memory, kinds->count * width);
    price->least = take(memory, kinds->count);
    price->most = take(memory, kinds->count);
    if (!price->losses || !price->most)
        return DECLINED;
    if (last->rise > 0 && last->run > 0 && last->run < width && last->exponent == grid->exponent &&
        last->weight == grid->weight && last->rise <= ((i64)1 << PRODUCT_BITS) / width) {
        price->rise = last->rise;
        price->run = last->run;
        compute_losses(grid, kinds, price);
        if (price->least_sum <= pool && pool <= price->most_sum)
            return SOLVED;
    }
    Memory rest = *memory; /* what the search takes is free again after it */
    if (find_price(&rest, grid, kinds, pool, price))
        return DECLINED;
    compute_losses(grid, kinds, price);
    *last = (LastPrice){price->rise, price->run, grid->exponent, grid->weight};
    return price->least_sum <= pool && pool <= price->most_sum ? SOLVED : DECLINED;
}

/* Write to `sizes` the best size of each of `rows` rows of `values`, with a sum of at most `pool`.

   `present`: the size that each row holds now. `numbers`: equal where rows are equal, or null. `room`: memory for
   `numbers_of_room` numbers. `last_price`: four numbers for the next call, at first 0. Return 0, or 1 if declined. */
EXPORT int bftrain_best_sizes(
    const double *values, i64 rows, i64 width, const i64 *present, const i64 *numbers, i64 pool, i64 *sizes, i64 *room,
    i64 numbers_of_room, i64 *last_price) {
    Memory memory = {room, room + numbers_of_room};
    Kinds kinds;
    Grid grid;
    Price price;
    Candidates candidates;
    if (rows < 1 || rows > MOST_ROWS || width < 1 || pool < 0 || width > numbers_of_room / TIMES_TABLE / rows)
        return DECLINED;
    for (i64 row = 0; row < rows; row++)
        if (present[row] < 0)
            return DECLINED;
    if (find_kinds(&memory, values, numbers, present, rows, width, &kinds) || make_grid(&memory, values, &kinds, &grid))
        return DECLINED;
    i64 idle = 0, *by_kind = take(&memory, kinds.count);
    if (!by_kind)
        return DECLINED;
    if (serve_all(&grid, &kinds, pool, by_kind, sizes) == SOLVED)
        return SOLVED;
    if (price_nodes(&memory, &grid, &kinds, pool, (LastPrice *)last_price, &price))
        return DECLINED;
    if (divide_without_loss(&price, &kinds, pool, sizes, by_kind, &idle) == SOLVED)
        return SOLVED;
    i64 known = smallest_known_loss(&price, &kinds, pool, idle, by_kind);
    if (find_candidates(&memory, &price, &kinds, pool, known, &candidates))
        return DECLINED;
    return divide(&memory, &price, &kinds, pool, &candidates, sizes);
}
