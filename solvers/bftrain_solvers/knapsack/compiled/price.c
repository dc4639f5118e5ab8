/* The price of a node at which the tasks want as many nodes as there are, and the loss of each size at this price. */

#include "knapsack.h"

#define MOST_WORK 4000000 /* comparisons: a few milliseconds, and two to three times the usual number */

void compute_losses(const Grid *grid, const Kinds *kinds, Price *price) {
    i64 width = kinds->width, rise = price->rise, run = price->run;
    price->least_sum = price->most_sum = 0;
    for (i64 kind = 0; kind < kinds->count; kind++) {
        const i64 *entries = grid->entries + kind * width;
        i64 *losses = price->losses + kind * width;
        i64 best = -NEVER, least = 0, most = 0;
        for (i64 size = 0; size < width; size++) {
            i64 paid = entries[size] == FORBIDDEN ? -NEVER : entries[size] * run - rise * size;
            losses[size] = paid;
            if (paid >= best) {
                least = paid > best ? size : least;
                most = size;
                best = paid;
            }
        }
        for (i64 size = 0; size < width; size++)
            losses[size] = best - losses[size];
        price->least[kind] = least;
        price->most[kind] = most;
        price->least_sum += least * kinds->copies[kind];
        price->most_sum += most * kinds->copies[kind];
    }
}

/* An edge of the upper hull of a kind's entries over its sizes; `nodes` are those that all its rows need for it. */
typedef struct {
    i64 rise, run, nodes;
} Edge;

#define WORDS_OF_EDGE 3

/* Append the rising edges of one kind; `corner` has room for as many sizes as there are. */
static i64 append_edges(const i64 *entries, i64 width, i64 copies, i64 *corner, Edge *edges) {
    i64 corners = 0;
    for (i64 size = 0; size < width; size++) {
        i64 entry = entries[size];
        if (entry == FORBIDDEN || (corners && entry <= entries[corner[corners - 1]]))
            continue; /* never better than a smaller size */
        while (corners > 1) {
            i64 last = corner[corners - 1], before = corner[corners - 2];
            if ((entries[last] - entries[before]) * (size - last) > (entry - entries[last]) * (last - before))
                break;
            corners--;
        }
        corner[corners++] = size;
    }
    for (i64 each = 1; each < corners; each++) {
        edges[each - 1].run = corner[each] - corner[each - 1];
        edges[each - 1].rise = entries[corner[each]] - entries[corner[each - 1]];
        edges[each - 1].nodes = edges[each - 1].run * copies;
    }
    return corners - 1;
}

/* The edges from `begin` to `end`, in order: `steeper` of them rise more than rise / run, then `alike` as much. */
typedef struct {
    i64 steeper, alike, nodes_of_steeper, nodes_of_alike;
} Parts;

static Parts partition(Edge *edges, i64 begin, i64 end, i64 rise, i64 run) {
    Parts parts = {0, 0, 0, 0};
    i64 steep = begin, at = begin;
    while (at < end) {
        Edge here = edges[at];
        i64 mine = here.rise * run, theirs = rise * here.run;
        if (mine > theirs) {
            edges[at++] = edges[steep];
            edges[steep++] = here;
            parts.nodes_of_steeper += here.nodes;
        } else if (mine == theirs) {
            at++;
            parts.nodes_of_alike += here.nodes;
        } else {
            edges[at] = edges[--end];
            edges[end] = here;
        }
    }
    parts.steeper = steep - begin;
    parts.alike = at - steep;
    return parts;
}

/* Nodes go to the steepest edges first, and the price is the slope of the edge at which none are left. As in a search for
   a median, the edges are divided at one of them, and the search continues in the part that contains the right one.
   That edge is drawn at random: one at a fixed place would be a bad choice, because these edges are sorted in parts. */
Outcome find_price(Memory *memory, const Grid *grid, const Kinds *kinds, i64 pool, Price *price) {
    i64 count = 0, *corner = take(memory, kinds->width);
    Edge *edges = (Edge *)take(memory, WORDS_OF_EDGE * kinds->count * kinds->width);
    if (!edges)
        return DECLINED;
    for (i64 kind = 0; kind < kinds->count; kind++) {
        const i64 *entries = grid->entries + kind * kinds->width;
        count += append_edges(entries, kinds->width, kinds->copies[kind], corner, edges + count);
    }
    i64 begin = 0, end = count, left = pool, work = 0;
    uint64_t drawn = 1;
    while (begin < end) {
        work += end - begin;
        if (work > MOST_WORK)
            return DECLINED;
        drawn = drawn * 0x5851F42D4C957F2Du + 1;
        Edge tried = edges[begin + (i64)((drawn >> 33) % (uint64_t)(end - begin))];
        Parts parts = partition(edges, begin, end, tried.rise, tried.run);
        if (parts.nodes_of_steeper > left) {
            end = begin + parts.steeper;
        } else if (parts.nodes_of_steeper + parts.nodes_of_alike >= left) {
            price->rise = tried.rise;
            price->run = tried.run;
            return SOLVED;
        } else {
            begin += parts.steeper + parts.alike;
            left -= parts.nodes_of_steeper + parts.nodes_of_alike;
        }
    }
    return DECLINED;
}
