/* The nodes of a replay and their tasks: departures, arrivals, and the step from sizes to nodes.

   The rules are those of bftrain/deciding with the placement `neighbours`: a task that shrinks gives up its farthest
   nodes, one that grows takes the nearest window of free nodes. All memory is the caller's; no function keeps anything
   outside of it. */

#include "knapsack.h"

#include <math.h>

#define FREE (-1)    /* idle and unallocated */
#define OUTSIDE (-2) /* not idle: the main scheduler's */
#define NONE (-1)
#define SLOT_BASE 1000 /* positions of the slots of one node differ by less: see placement.py */
#define LARGEST_VALUE 1e300 /* of an entry: see value_table_builder.py */

/* The same numbers as in compiled_allocation.py */
enum { START, GROW, SHRINK, STOP, PREEMPTED_SHRINK, PREEMPTED_STOP, BELOW_MINIMUM_STOP };

/* Nodes are numbered by position and then by name; the caller numbers them by their place in the log. */
typedef struct {
    /* By node */
    const i64 *number_of; /* by place in the log */
    const i64 *log_place, *position, *name_rank, *is_slot;
    i64 *owner, *next, *previous; /* the task, or FREE or OUTSIDE; the sequence of assignment within a task */
    double *since;
    uint64_t *free; /* one bit a node */
    i64 words;      /* of these bits */
    i64 *around, *idle, *nearness; /* scratch */
    /* By task */
    const i64 *minimum, *row_class;
    i64 *first, *last, *size, *decided; /* `decided`: the size that the last decision chose */
    i64 *lost, *changing;               /* scratch: nodes to lose or gain, 0 between calls; tasks */
    /* By class of tasks with equal values: the value per second by size, `stride` numbers; the greatest of them; the
       seconds that growing, shrinking and starting cost; the largest size */
    const double *worth, *greatest, *costs_s;
    const i64 *largest;
    i64 stride;
    double horizon_s;
    /* The present decision: tasks and their sizes, values of these, and scratch for the table */
    const i64 *competing;
    i64 *sizes, *present, *numbers;
    double *entries, *table;
    i64 *room, numbers_of_room, *last_price;
    /* Results: actions as (kind, task, nodes), and size changes as (task, size) since the last decision */
    i64 *actions, *size_changes;
    /* Finished allocations, if they are recorded */
    double *from_s, *to_s;
    int32_t *of_task, *on_node;
    /* Counts */
    i64 records, recorded, action_count, change_count, competing_count, pool, used;
} Allocation;

static void act(Allocation *a, i64 kind, i64 task, i64 nodes) {
    i64 *action = a->actions + 3 * a->action_count++;
    action[0] = kind, action[1] = task, action[2] = nodes;
}

static void set_free(Allocation *a, i64 node) {
    a->owner[node] = FREE;
    a->free[node >> 6] |= (uint64_t)1 << (node & 63);
}

/* Remove a node from its task, and record the allocation that ends. */
static void withdraw(Allocation *a, i64 node, double now_s) {
    i64 task = a->owner[node], before = a->previous[node], after = a->next[node];
    *(before == NONE ? &a->first[task] : &a->next[before]) = after;
    *(after == NONE ? &a->last[task] : &a->previous[after]) = before;
    a->size[task]--;
    a->used--;
    if (a->records) {
        i64 row = a->recorded++;
        a->from_s[row] = a->since[node];
        a->to_s[row] = now_s;
        a->of_task[row] = (int32_t)task;
        a->on_node[row] = (int32_t)a->log_place[node];
    }
}

static i64 release_all(Allocation *a, i64 task, double now_s) {
    i64 count = 0;
    for (i64 node = a->first[task], after; node != NONE; node = after, count++) {
        after = a->next[node];
        withdraw(a, node, now_s);
        set_free(a, node);
    }
    return count;
}

static void assign(Allocation *a, i64 task, i64 node, double now_s) {
    a->owner[node] = task;
    a->free[node >> 6] &= ~((uint64_t)1 << (node & 63));
    a->since[node] = now_s;
    a->previous[node] = a->last[task];
    a->next[node] = NONE;
    *(a->last[task] == NONE ? &a->first[task] : &a->next[a->last[task]]) = node;
    a->last[task] = node;
    a->size[task]++;
    a->used++;
}

/* Nodes leave the pool: their tasks shrink, or stop below their minimum. Return 1 if a node was not in the pool. */
EXPORT int bftrain_leave(Allocation *a, const i64 *places, i64 count, double now_s) {
    i64 affected = 0;
    a->action_count = 0;
    for (i64 i = 0; i < count; i++) {
        i64 node = a->number_of[places[i]], task = a->owner[node];
        if (task == OUTSIDE)
            return 1;
        if (task == FREE) {
            a->free[node >> 6] &= ~((uint64_t)1 << (node & 63));
            a->owner[node] = OUTSIDE;
        } else if (a->lost[task]++ == 0)
            a->changing[affected++] = task;
    }
    a->pool -= count;
    for (i64 i = 0; i < affected; i++) {
        i64 task = a->changing[i], lost = a->lost[task];
        a->lost[task] = 0;
        for (i64 k = 0, left = lost; left > 0; k++) {
            i64 node = a->number_of[places[k]];
            if (a->owner[node] != task)
                continue;
            withdraw(a, node, now_s);
            a->owner[node] = OUTSIDE;
            left--;
        }
        if (a->size[task] >= a->minimum[task]) {
            act(a, PREEMPTED_SHRINK, task, lost);
            continue;
        }
        i64 rest = release_all(a, task, now_s);
        act(a, rest ? BELOW_MINIMUM_STOP : PREEMPTED_STOP, task, lost + rest);
    }
    return 0;
}

/* Nodes join the pool. Return 1 if one was there already. */
EXPORT int bftrain_join(Allocation *a, const i64 *places, i64 count) {
    for (i64 i = 0; i < count; i++) {
        i64 node = a->number_of[places[i]];
        if (a->owner[node] != OUTSIDE)
            return 1;
        set_free(a, node);
    }
    a->pool += count;
    return 0;
}

/* Free all nodes of a task that has finished, or at the end of the run. */
EXPORT void bftrain_release(Allocation *a, i64 task, double now_s) {
    release_all(a, task, now_s);
}

/* Write the row of a task to the table, as RowValues.row() in value_table_builder.py computes it. */
static Outcome fill_row(const Allocation *a, i64 task, double *row, i64 width) {
    i64 class = a->row_class[task], size = a->size[task], last = a->largest[class] + 1;
    const double *worth = a->worth + class * a->stride, *costs_s = a->costs_s + 3 * class;
    double most_s = fmax(costs_s[2], fmax(costs_s[1], costs_s[0]));
    if (!(a->greatest[class] * (a->horizon_s + most_s) <= LARGEST_VALUE / 2.0))
        return DECLINED;
    last = last < width ? last : width;
    double growing = costs_s[0] * worth[size], shrinking = costs_s[1] * worth[size];
    if (size == 0) {
        row[0] = a->horizon_s * worth[0];
        for (i64 n = 1; n < last; n++)
            row[n] = a->horizon_s * worth[n] - costs_s[2] * worth[n];
    } else {
        i64 below = size < last ? size : last;
        for (i64 n = 0; n < below; n++)
            row[n] = a->horizon_s * worth[n] - shrinking;
        if (size < last)
            row[size] = a->horizon_s * worth[size];
        for (i64 n = size + 1; n < last; n++)
            row[n] = a->horizon_s * worth[n] - growing;
    }
    for (i64 n = 1; n < a->minimum[task] && n < last; n++)
        row[n] = -INFINITY;
    for (i64 n = last; n < width; n++)
        row[n] = -INFINITY;
    return SOLVED;
}

/* Choose the sizes of the competing tasks. */
EXPORT int bftrain_choose(Allocation *a) {
    i64 count = a->competing_count, largest = 0;
    for (i64 i = 0; i < count; i++) {
        i64 most = a->largest[a->row_class[a->competing[i]]];
        largest = most > largest ? most : largest;
    }
    i64 width = 1 + (a->pool < largest ? a->pool : largest);
    for (i64 i = 0; i < count; i++) {
        i64 task = a->competing[i];
        if (fill_row(a, task, a->table + i * width, width))
            return DECLINED;
        a->present[i] = a->size[task];
        a->numbers[i] = a->row_class[task] * a->stride + a->size[task];
    }
    i64 pool = a->pool < count * width ? a->pool : count * width;
    if (bftrain_best_sizes(a->table, count, width, a->present, a->numbers, pool, a->sizes, a->room, a->numbers_of_room,
                           a->last_price))
        return DECLINED;
    for (i64 i = 0; i < count; i++)
        a->entries[i] = a->table[i * width + a->sizes[i]];
    return SOLVED;
}

/* Sort nodes by rising key, those with equal keys by name. */
static void sort_nodes(const Allocation *a, i64 *nodes, i64 count, const i64 *key) {
    for (i64 gap = count / 2; gap > 0; gap /= 2)
        for (i64 i = gap; i < count; i++) {
            i64 node = nodes[i], k = i;
            for (; k >= gap; k -= gap) {
                i64 other = nodes[k - gap];
                if (key[other] < key[node] || (key[other] == key[node] && a->name_rank[other] < a->name_rank[node]))
                    break;
                nodes[k] = other;
            }
            nodes[k] = node;
        }
}

/* Write a task's nodes to `around`, by position; return the position of the middle one. */
static i64 middle_of(Allocation *a, i64 task) {
    i64 count = 0;
    for (i64 node = a->first[task]; node != NONE; node = a->next[node])
        a->around[count++] = node;
    sort_nodes(a, a->around, count, a->position);
    return a->position[a->around[count / 2]];
}

/* Take from a task the `count` nodes that are farthest from its middle. */
static void give_up(Allocation *a, i64 task, i64 count, double now_s) {
    i64 middle = middle_of(a, task), size = a->size[task];
    for (i64 i = 0; i < size; i++) {
        i64 node = a->around[i], distance = a->position[node] - middle;
        a->nearness[node] = distance < 0 ? distance : -distance;
    }
    sort_nodes(a, a->around, size, a->nearness);
    for (i64 i = 0; i < count; i++) {
        withdraw(a, a->around[i], now_s);
        set_free(a, a->around[i]);
    }
}

/* Return the free slots of a node whose slots include this window, or more than any node has. */
static i64 free_beside(const Allocation *a, const i64 *nodes, i64 free, i64 first, i64 last) {
    i64 host = a->position[nodes[first]] / SLOT_BASE;
    if (a->position[nodes[last]] / SLOT_BASE != host)
        return SLOT_BASE + 1;
    while (first > 0 && a->position[nodes[first - 1]] / SLOT_BASE == host)
        first--;
    while (last + 1 < free && a->position[nodes[last + 1]] / SLOT_BASE == host)
        last++;
    return last - first + 1;
}

/* Return where, among the free nodes, the best window of `count` nodes for a task begins. */
static i64 best_window(Allocation *a, i64 task, i64 count, const i64 *nodes, i64 free) {
    i64 best = 0, least = INT64_MAX, holds = a->size[task] > 0, middle = 0;
    if (holds)
        middle = middle_of(a, task);
    for (i64 first = 0; first + count <= free; first++) {
        i64 begin = a->position[nodes[first]], end = a->position[nodes[first + count - 1]], distance = end - begin;
        if (holds)
            distance = middle - begin > end - middle ? middle - begin : end - middle;
        else if (a->is_slot[nodes[0]])
            distance += SLOT_BASE * free_beside(a, nodes, free, first, first + count - 1);
        if (distance < least)
            least = distance, best = first;
    }
    return best;
}

/* Give a task the nearest window of free nodes; without nodes, the most compact one. */
static void grow(Allocation *a, i64 task, i64 count, double now_s) {
    i64 free = 0;
    for (i64 word = 0; word < a->words; word++)
        for (uint64_t bits = a->free[word]; bits; bits &= bits - 1)
            a->idle[free++] = 64 * word + __builtin_ctzll(bits);
    i64 first = count == free ? 0 : best_window(a, task, count, a->idle, free);
    for (i64 i = first; i < first + count; i++)
        assign(a, task, a->idle[i], now_s);
}

/* Carry out `sizes`: all tasks shrink before any grows, and the largest growth chooses first.

   Return 1 if the pool lacks nodes for them. */
EXPORT int bftrain_carry_out(Allocation *a, double now_s) {
    i64 growing = 0, left = a->pool;
    a->action_count = a->change_count = 0;
    for (i64 i = 0; i < a->competing_count; i++)
        left -= a->sizes[i];
    if (left < 0)
        return 1;
    for (i64 i = 0; i < a->competing_count; i++) {
        i64 task = a->competing[i], change = a->sizes[i] - a->size[task];
        if (a->decided[task] != a->sizes[i]) {
            i64 *row = a->size_changes + 2 * a->change_count++;
            row[0] = task, row[1] = a->decided[task] = a->sizes[i];
        }
        if (change > 0) {
            i64 place = growing++; /* insertion sort: usually few tasks grow, or all by the same number */
            for (; place > 0 && a->lost[a->changing[place - 1]] < change; place--)
                a->changing[place] = a->changing[place - 1];
            a->changing[place] = task;
            a->lost[task] = change;
        } else if (change && a->sizes[i] == 0) {
            release_all(a, task, now_s);
            act(a, STOP, task, -change);
        } else if (change) {
            give_up(a, task, -change, now_s);
            act(a, SHRINK, task, -change);
        }
    }
    for (i64 i = 0; i < growing; i++) {
        i64 task = a->changing[i], change = a->lost[task];
        a->lost[task] = 0;
        act(a, a->size[task] ? GROW : START, task, change);
        grow(a, task, change, now_s);
    }
    return 0;
}
