/* The few sizes that may be in a best plan: a size that loses more than a known plan is in none. */

#include "knapsack.h"

#include <math.h>

#define DEAR 1e290 /* a loss per node that no size has */

/* Return the smallest loss of some plans: all rows at sizes without a loss, the present sizes, and both with one change.

   In the first, `grown[k]` rows of kind k have the largest size without a loss, the others the smallest, and `idle`
   nodes are left. */
i64 smallest_known_loss(const Price *price, const Kinds *kinds, i64 pool, i64 idle, const i64 *grown) {
    i64 width = kinds->width, rise = price->rise, known = rise * idle, unused = pool, lost = 0;
    for (i64 kind = 0; kind < kinds->count; kind++) {
        const i64 *losses = price->losses + kind * width;
        for (i64 size = 0; size < width; size++) {
            if (losses[size] >= known)
                continue;
            i64 small = idle + price->least[kind] - size, large = idle + price->most[kind] - size;
            if (grown[kind] < kinds->copies[kind] && small >= 0 && losses[size] + rise * small < known)
                known = losses[size] + rise * small;
            if (grown[kind] && large >= 0 && losses[size] + rise * large < known)
                known = losses[size] + rise * large;
        }
    }
    for (i64 kind = 0; kind < kinds->count; kind++) {
        i64 held = kinds->held[kind];
        if (held >= width || price->losses[kind * width + held] >= known)
            return known;
        i64 loss = price->losses[kind * width + held];
        unused -= held * kinds->copies[kind];
        if (unused < 0 || loss > (known - 1 - lost) / kinds->copies[kind])
            return known; /* one change might still make the present sizes good, but rarely does */
        lost += loss * kinds->copies[kind];
    }
    if (rise * width > known || unused > known / rise)
        return known;
    i64 staying = lost + rise * unused;
    for (i64 kind = 0; kind < kinds->count; kind++) {
        const i64 *losses = price->losses + kind * width;
        i64 held = kinds->held[kind];
        for (i64 size = 0; size < width; size++) {
            if (losses[size] >= known || size - held > unused)
                continue;
            i64 total = staying + losses[size] - losses[held] - rise * (size - held);
            known = total < known ? total : known;
        }
    }
    return staying < known ? staying : known;
}

/* Losses for one node that others give up or take: no row gives or takes nodes for less. */
typedef struct {
    double giving, taking;
} Least;

static Least least_per_node(const Price *price, const Kinds *kinds, i64 known) {
    Least least = {DEAR, (double)price->rise};
    for (i64 kind = 0; kind < kinds->count; kind++) {
        const i64 *losses = price->losses + kind * kinds->width;
        i64 fewest = price->least[kind], most = price->most[kind];
        for (i64 size = 0; size < fewest; size++)
            if (losses[size] <= known)
                least.giving = fmin(least.giving, (double)losses[size] / (double)(fewest - size));
        for (i64 size = most + 1; size < kinds->width; size++)
            if (losses[size] <= known)
                least.taking = fmin(least.taking, (double)losses[size] / (double)(size - most));
    }
    return least;
}

/* Make losses relative to the smallest one of each kind, which every plan has to bear. */
static void subtract_smallest(Candidates *candidates, const Kinds *kinds, i64 fixed) {
    i64 kept = 0, begin = 0;
    candidates->budget -= fixed;
    for (i64 kind = 0; kind < kinds->count; kind++) {
        i64 end = candidates->start[kind + 1], smallest = NEVER;
        for (i64 each = begin; each < end; each++)
            smallest = candidates->loss[each] < smallest ? candidates->loss[each] : smallest;
        candidates->start[kind] = kept;
        for (i64 each = begin; each < end; each++) {
            i64 loss = candidates->loss[each] - smallest;
            if (loss > candidates->budget)
                continue;
            candidates->size[kept] = candidates->size[each];
            candidates->loss[kept++] = loss;
        }
        begin = end;
    }
    candidates->start[kinds->count] = kept;
}

Outcome find_candidates(
    Memory *memory, const Price *price, const Kinds *kinds, i64 pool, i64 known, Candidates *candidates) {
    i64 width = kinds->width, count = 0, fixed = 0;
    candidates->start = take(memory, kinds->count + 1);
    candidates->size = take(memory, kinds->count * width);
    candidates->loss = take(memory, kinds->count * width);
    if (!candidates->loss)
        return DECLINED;
    Least least = least_per_node(price, kinds, known);
    i64 room = pool - price->least_sum, over = price->most_sum - pool;
    double limit = (double)known * (1.0 + MARGIN);
    for (i64 kind = 0; kind < kinds->count; kind++) {
        const i64 *losses = price->losses + kind * width;
        i64 smallest = NEVER;
        candidates->start[kind] = count;
        for (i64 size = 0; size < width; size++) {
            if (losses[size] > known)
                continue;
            double given = (double)(size - price->least[kind] - room);  /* nodes that others have to give up */
            double taken = (double)(price->most[kind] - size - over);   /* nodes that others take, or that stay idle */
            double others = fmax(0.0, fmax(least.giving * given, least.taking * taken));
            if ((double)losses[size] + others > limit)
                continue;
            candidates->size[count] = size;
            candidates->loss[count++] = losses[size];
            smallest = losses[size] < smallest ? losses[size] : smallest;
        }
        if (smallest > (known - fixed) / kinds->copies[kind])
            return DECLINED;
        fixed += smallest * kinds->copies[kind];
    }
    candidates->start[kinds->count] = count;
    candidates->budget = known;
    if (fixed)
        subtract_smallest(candidates, kinds, fixed);
    return SOLVED;
}
