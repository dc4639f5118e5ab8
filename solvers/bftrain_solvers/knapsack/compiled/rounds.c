/* Rounds between two computations of shares, as rounds/round_engine.py and ByShares carry them out, to the last bit.

   The caller owns all memory; struct Rounds is that of rounds/compiled_rounds.py, field by field. */

#include "compiled.h"

#include <math.h>

#define ROUNDING (1.0 - 1e-12) /* the constants of round_engine.py and round_policy.py */
#define PATIENCE 1000
#define MOST_ROUNDS 9007199254740992.0 /* 2^53: doubles count larger numbers with gaps, and rows of steps are doubles */
#define OF_EQUALS 1e-14
#define NO_SHARE 1e9
#define STEP_COLUMNS 13
#define ALONE -1
#define BLOCK 128 /* of numpy's pairwise sums */

typedef struct {
    i64 tasks, kinds, users, drawn, at_boundary, never_alike, first_measured, after_measured, most_steps, most_pairs;
    double round_s, limit_s, interval_s, most_backlog_s;
    /* by task; tables by task and kind */
    const double *submit_s, *speeds, *best;
    const i64 *nodes, *owner, *fastest;
    double *left, *service_s, *node_s, *paired_s, *done_samples, *start_s, *end_s, *seen_s;
    i64 *kind, *partner, *starts, *moves, *preemptions;
    /* of the policy */
    const double *shares, *deficit_s, *service_then_s;
    const unsigned char *is_new;
    /* by kind */
    const i64 *count;
    double *held_node_s, *pool_node_s;
    const i64 *orders; /* of kinds, one for each choice */
    /* pairs with shares: a row for each pair and kind */
    i64 rows;
    const i64 *row_one, *row_other, *row_kind;
    const double *row_shares, *row_deficit_s, *row_speeds;
    double *row_received_s;
    i64 *row_pair; /* its place below; -1: has not run together yet */
    /* pairs that ran together, by kind */
    i64 *pair_tasks, *pair_counted;
    double *pair_s, *pair_read_s, *pair_before_s;
    /* state */
    i64 here_count, come, round, changes, dirty, idle_rounds, unmeasured, overload, too_long, orders_left, pairs;
    double now_s, due_s, reset_s;
    i64 *here;
    /* results: rows of steps, and node-seconds by user */
    i64 steps;
    double *step_rows, *step_users;
    /* working memory by task, and for wishes */
    i64 *run, *run_kind, *mate, *run_row, *is_here, *granted, *row_of, *wish;
    double *reached, *needs_s, *samples, *run_nodes, *held_s, *wish_priority, *row_priority;
} Rounds;

static double larger(double a, double b) { return a > b ? a : b; }
static double smaller(double a, double b) { return a < b ? a : b; }

/* Add up as numpy does. */
static double sum_of(const double *values, i64 count)
{
    if (count < 8) {
        double sum = 0.0;
        for (i64 i = 0; i < count; i++)
            sum += values[i];
        return sum;
    }
    if (count <= BLOCK) {
        double part[8];
        i64 i;
        for (i = 0; i < 8; i++)
            part[i] = values[i];
        for (; i < count - count % 8; i += 8)
            for (int j = 0; j < 8; j++)
                part[j] += values[i + j];
        double sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
        for (; i < count; i++)
            sum += values[i];
        return sum;
    }
    i64 half = count / 2;
    half -= half % 8;
    return sum_of(values, half) + sum_of(values + half, count - half);
}

/* -- a heap of wishes: the largest priority first, then the smallest number */

static int before(const Rounds *r, i64 a, i64 b)
{
    double p = r->wish_priority[a], q = r->wish_priority[b];
    return p > q || (p == q && r->wish[a] < r->wish[b]);
}

static void sift(Rounds *r, i64 place, i64 size)
{
    for (;;) {
        i64 best = place, child = 2 * place + 1;
        if (child < size && before(r, child, best))
            best = child;
        if (child + 1 < size && before(r, child + 1, best))
            best = child + 1;
        if (best == place)
            return;
        double priority = r->wish_priority[place];
        i64 wish = r->wish[place];
        r->wish_priority[place] = r->wish_priority[best];
        r->wish[place] = r->wish[best];
        r->wish_priority[best] = priority;
        r->wish[best] = wish;
        place = best;
    }
}

static i64 pop(Rounds *r, i64 *size)
{
    i64 wish = r->wish[0];
    *size -= 1;
    r->wish[0] = r->wish[*size];
    r->wish_priority[0] = r->wish_priority[*size];
    sift(r, 0, *size);
    return wish;
}

static i64 heap_of(Rounds *r, i64 size)
{
    for (i64 i = size / 2 - 1; i >= 0; i--)
        sift(r, i, size);
    return size;
}

/* -- arrivals */

/* Return the seconds for which waiting tasks could keep all nodes busy, the most work first. */
static double backlog_s(Rounds *r)
{
    i64 kinds = r->kinds, size = 0, all_nodes = 0, count = 0;
    double *node_s = r->needs_s, *of_running = r->samples;
    for (i64 k = 0; k < kinds; k++)
        all_nodes += r->count[k];
    for (i64 i = 0; i < r->here_count; i++) {
        i64 task = r->here[i];
        if (isfinite(r->left[task])) {
            node_s[size] = r->left[task] / r->best[task] * (double)r->nodes[task];
            r->run[size++] = task;
        }
    }
    double total = sum_of(node_s, size);
    if (total <= r->most_backlog_s * (double)all_nodes)
        return 0.0;
    for (i64 i = 0; i < size; i++) {
        r->wish[i] = i;
        r->wish_priority[i] = node_s[i];
    }
    i64 room[kinds], left = all_nodes;
    for (i64 k = 0; k < kinds; k++)
        room[k] = r->count[k];
    for (i64 wishes = heap_of(r, size); wishes && left;) {
        i64 each = pop(r, &wishes), task = r->run[each];
        for (i64 choice = 0; choice < kinds; choice++) {
            i64 k = r->fastest[task * kinds + choice];
            if (r->speeds[task * kinds + k] > 0.0 && r->nodes[task] <= room[k]) {
                room[k] -= r->nodes[task];
                left -= r->nodes[task];
                of_running[count++] = node_s[each];
                break;
            }
        }
    }
    return (total - sum_of(of_running, count)) / (double)all_nodes;
}

static double next_arrival_s(const Rounds *r)
{
    return r->come < r->tasks ? r->submit_s[r->come] : INFINITY;
}

static void changed(Rounds *r)
{
    r->changes++;
    r->dirty = 1;
    r->idle_rounds = 0;
}

static void arrivals(Rounds *r)
{
    if (r->now_s < next_arrival_s(r))
        return;
    while (r->come < r->tasks && r->submit_s[r->come] <= r->now_s)
        r->here[r->here_count++] = r->come++;
    changed(r);
    if (r->come < r->tasks && backlog_s(r) > r->most_backlog_s)
        r->overload = 1;
}

/* -- the choice of a round */

static i64 first_row(const Rounds *r, i64 row)
{
    while (row > 0 && r->row_one[row - 1] == r->row_one[row] && r->row_other[row - 1] == r->row_other[row])
        row--;
    return row;
}

static i64 after_row(const Rounds *r, i64 row)
{
    while (row < r->rows - 1 && r->row_one[row + 1] == r->row_one[row] && r->row_other[row + 1] == r->row_other[row])
        row++;
    return row + 1;
}

/* Read the time of pairs that ran in the previous round. */
static void count_received(Rounds *r)
{
    for (i64 i = 0; i < r->here_count; i++) {
        i64 one = r->here[i], row = r->row_of[one];
        if (r->partner[one] <= one || row < 0)
            continue;
        i64 pair = r->row_pair[row], after = after_row(r, row);
        for (i64 k = pair * r->kinds; k < (pair + 1) * r->kinds; k++) {
            if (!r->pair_counted[pair])
                r->pair_before_s[k] = r->pair_read_s[k];
            r->pair_read_s[k] = r->pair_s[k];
        }
        r->pair_counted[pair] = 1;
        for (i64 each = first_row(r, row); each < after; each++) {
            i64 place = pair * r->kinds + r->row_kind[each];
            r->row_received_s[each] = r->pair_read_s[place] - r->pair_before_s[place];
        }
    }
}

static double priority_of(const Rounds *r, i64 task, i64 kind)
{
    i64 place = task * r->kinds + kind;
    double received = r->service_s[place] - r->paired_s[place];
    received -= r->service_then_s[place];
    received += r->round_s / 2.0;
    if (r->shares[place] > 0.0)
        return r->shares[place] / received * (1.0 + OF_EQUALS * r->deficit_s[place]);
    return -(NO_SHARE - r->deficit_s[place]);
}

/* List the wishes for one kind as a heap: of tasks alone by their place, then of pairs by their row. */
static i64 wishes_for(Rounds *r, i64 kind)
{
    i64 size = 0;
    for (i64 i = 0; i < r->here_count; i++) {
        i64 task = r->here[i];
        if (r->granted[task] || !(r->speeds[task * r->kinds + kind] > 0.0))
            continue;
        r->wish[size] = i;
        r->wish_priority[size++] = priority_of(r, task, kind);
    }
    for (i64 row = 0; row < r->rows; row++) {
        i64 one = r->row_one[row], other = r->row_other[row];
        if (r->row_kind[row] != kind || !r->is_here[one] || !r->is_here[other] || r->granted[one] || r->granted[other])
            continue;
        r->wish[size] = r->here_count + row;
        r->wish_priority[size++] = r->row_priority[row];
    }
    return heap_of(r, size);
}

/* Choose the running tasks, their kinds, speeds and mates; return how many, without tasks that are new. */
static i64 choose(Rounds *r)
{
    i64 kinds = r->kinds, listed[kinds], room[kinds], size = 0, running = 0;
    if (r->rows)
        count_received(r);
    for (i64 row = 0; row < r->rows; row++) {
        double priority = r->row_shares[row] / (r->row_received_s[row] + r->round_s / 2.0);
        r->row_priority[row] = priority * (1.0 + OF_EQUALS * r->row_deficit_s[row]);
    }
    for (i64 k = 0; k < kinds; k++) {
        listed[k] = r->drawn ? r->orders[k] : k;
        room[k] = r->count[k];
    }
    if (r->drawn) {
        r->orders += kinds;
        r->orders_left--;
    }
    for (i64 i = 0; i < r->here_count; i++)
        r->granted[r->here[i]] = 0;
    for (i64 turn = 0; turn < kinds; turn++) {
        i64 kind = listed[turn];
        if (!room[kind])
            continue;
        for (i64 wishes = wishes_for(r, kind); wishes && room[kind];) {
            i64 wish = pop(r, &wishes), row = wish - r->here_count;
            i64 one = row < 0 ? r->here[wish] : r->row_one[row], other = row < 0 ? ALONE : r->row_other[row];
            if (r->granted[one] || (row >= 0 && r->granted[other]) || r->nodes[one] > room[kind])
                continue;
            room[kind] -= r->nodes[one];
            for (int side = 0; side < 1 + (row >= 0); side++, size++) {
                i64 task = side ? other : one;
                r->granted[task] = 1;
                r->run[size] = task;
                r->run_kind[size] = kind;
                r->mate[size] = side ? one : other;
                r->reached[size] = row < 0 ? r->speeds[task * kinds + kind] : r->row_speeds[2 * row + side];
                r->run_row[size] = row < 0 ? -1 : row;
            }
        }
    }
    for (i64 i = 0; i < size; i++) {
        if (r->is_new[r->run[i]])
            continue;
        r->run[running] = r->run[i];
        r->run_kind[running] = r->run_kind[i];
        r->mate[running] = r->mate[i];
        r->reached[running] = r->reached[i];
        r->run_row[running] = r->run_row[i];
        running++;
    }
    return running;
}

/* -- a step: one round, or several alike */

/* Return how many rounds of this length are alike; 0 for more than this code can count. The first task to finish needs
   `least` rounds. */
static i64 rounds_alike(const Rounds *r, i64 running, double length_s, double least)
{
    if (r->round > (i64)MOST_ROUNDS - PATIENCE)
        return 0;
    int alike = running == r->here_count && !r->never_alike && (r->kinds == 1 || !r->drawn);
    for (i64 i = 0; alike && r->kinds > 1 && i < running; i++)
        alike = r->run_kind[i] == 0;
    if (!alike)
        return 1;
    double rounds = (smaller(r->limit_s, next_arrival_s(r)) - r->now_s) / length_s;
    rounds = smaller(smaller(rounds, larger(1.0, (r->due_s - r->now_s) / length_s)), least * ROUNDING - 1.0);
    if (rounds == INFINITY)
        return PATIENCE;
    return rounds < MOST_ROUNDS - (double)r->round ? (i64)larger(1.0, ceil(rounds)) : 0;
}

/* Stop tasks that lost their nodes and start new ones; mark those by `granted`. */
static void launch(Rounds *r, i64 running, i64 *started, i64 *stopped)
{
    *started = *stopped = 0;
    for (i64 i = 0; i < r->here_count; i++)
        r->granted[r->here[i]] = 0;
    for (i64 i = 0; i < running; i++)
        r->granted[r->run[i]] = 1;
    for (i64 i = 0; i < r->here_count; i++) {
        i64 task = r->here[i];
        if (r->kind[task] >= 0 && !r->granted[task]) {
            r->preemptions[task]++;
            r->kind[task] = -1;
            r->partner[task] = ALONE;
            ++*stopped;
        }
    }
    for (i64 i = 0; i < running; i++) {
        i64 task = r->run[i], kind = r->run_kind[i], then = r->kind[task];
        r->granted[task] = then != kind || r->partner[task] != r->mate[i];
        r->partner[task] = r->mate[i];
        if (!r->granted[task])
            continue;
        r->moves[task] += then >= 0;
        r->starts[task]++;
        r->kind[task] = kind;
        r->start_s[task] = fmin(r->start_s[task], r->now_s);
        ++*started;
    }
}

/* Add the joint time of each pair that ran: the time of the task that ran longer. */
static void count_pairs(Rounds *r, i64 running, const double *held_s)
{
    for (i64 i = 0; i < running; i++) {
        i64 task = r->run[i], kind = r->run_kind[i], row = r->run_row[i];
        if (row < 0)
            continue;
        r->paired_s[task * r->kinds + kind] += held_s[i];
        if (task != r->row_one[row])
            continue;
        if (r->row_pair[row] < 0) {
            i64 pair = r->pairs++, after = after_row(r, row);
            for (i64 each = first_row(r, row); each < after; each++)
                r->row_pair[each] = pair;
            r->pair_tasks[2 * pair] = task;
            r->pair_tasks[2 * pair + 1] = r->mate[i];
        }
        r->row_of[task] = row;
        r->pair_s[r->row_pair[row] * r->kinds + kind] += larger(held_s[i], held_s[i + 1]);
    }
}

/* Carry out a step; return 0, with nothing changed, if it has too many rounds. */
static int step(Rounds *r, i64 running)
{
    i64 kinds = r->kinds, started, stopped, finished = 0, first = r->round, pool = 0, waiting = r->here_count - running;
    double begin_s = r->now_s, used[kinds], *row = r->step_rows + r->steps * STEP_COLUMNS;
    double *users = r->step_users + r->steps * r->users, *held_s = r->held_s;
    double length_s = 0.0, least = INFINITY;
    int any = 0;
    for (i64 i = 0; i < running; i++) {
        double speed = r->reached[i], steps = floor(speed * r->round_s);
        r->run_nodes[i] = (double)r->nodes[r->run[i]] * (r->mate[i] >= 0 ? 0.5 : 1.0);
        r->needs_s[i] = speed > 0.0 ? r->left[r->run[i]] / speed : INFINITY;
        held_s[i] = steps > 0.0 ? steps / speed : r->round_s; /* the most time in a round, for whole samples */
        length_s = larger(length_s, smaller(held_s[i], r->needs_s[i]));
        least = smaller(least, r->needs_s[i] / held_s[i]);
        any |= speed != 0.0;
    }
    if (!running) {
        double next_s = smaller(next_arrival_s(r), r->due_s > r->now_s ? r->due_s : INFINITY);
        length_s = next_s < INFINITY ? next_s - r->now_s : r->round_s;
    }
    i64 rounds = rounds_alike(r, running, length_s, least);
    if (!rounds)
        return 0;
    launch(r, running, &started, &stopped);
    r->round += rounds;
    r->now_s = smaller(begin_s + (double)rounds * length_s, r->limit_s);
    double passed_s = r->now_s - begin_s, seen_s = smaller(begin_s + length_s, r->now_s);
    double before = sum_of(r->held_node_s, kinds);
    for (i64 k = 0; k < kinds; k++) {
        r->pool_node_s[k] += (double)r->count[k] * passed_s;
        pool += r->count[k];
        used[k] = 0.0;
    }
    for (i64 user = 0; user < r->users; user++)
        users[user] = 0.0;
    for (i64 i = 0; i < running; i++) {
        i64 task = r->run[i], kind = r->run_kind[i];
        double has_s = smaller((double)rounds * held_s[i], r->limit_s - begin_s);
        int done = r->needs_s[i] * ROUNDING <= has_s;
        double ran_s = done ? r->needs_s[i] : has_s;
        if (r->granted[task])
            r->seen_s[task] = fmin(r->seen_s[task], seen_s);
        r->samples[i] = ran_s * r->reached[i];
        if (!done && r->reached[i] * r->round_s >= 1.0)
            r->samples[i] = rint(r->samples[i]);
        r->done_samples[task] += r->samples[i];
        r->left[task] = done ? 0.0 : r->left[task] - r->samples[i];
        held_s[i] = r->at_boundary ? smaller(has_s, passed_s) : (begin_s + ran_s) - begin_s;
        double held_node_s = held_s[i] * r->run_nodes[i];
        r->service_s[task * kinds + kind] += held_s[i];
        r->node_s[task] += held_node_s;
        used[kind] += held_node_s;
        users[r->owner[task]] += held_node_s;
        if (done) {
            r->end_s[task] = begin_s + held_s[i];
            finished++;
        }
    }
    for (i64 k = 0; k < kinds; k++)
        r->held_node_s[k] += used[k];
    if (r->rows)
        count_pairs(r, running, held_s);
    if (finished) {
        i64 kept = 0;
        for (i64 i = 0; i < r->here_count; i++) {
            i64 task = r->here[i];
            if (isnan(r->end_s[task])) {
                r->here[kept++] = task;
                continue;
            }
            r->unmeasured -= task >= r->first_measured && task < r->after_measured;
            r->kind[task] = -1;
            r->is_here[task] = 0;
        }
        r->here_count = kept;
        changed(r);
    }
    r->idle_rounds = r->here_count && !any ? r->idle_rounds + rounds : 0;
    double cells[STEP_COLUMNS] = {
        (double)first, (double)rounds, begin_s, r->now_s, (double)pool, sum_of(r->held_node_s, kinds) - before,
        sum_of(r->samples, running), (double)running, (double)waiting, (double)started, (double)stopped, 0.0,
        (double)finished,
    };
    for (int column = 0; column < STEP_COLUMNS; column++)
        row[column] = cells[column];
    r->steps++;
    return 1;
}

/* Simulate rounds until shares have to be computed, memory is used up, or the run may end. */
EXPORT int bftrain_rounds(Rounds *r)
{
    i64 begun = r->steps;
    for (i64 i = 0; i < r->here_count; i++)
        r->is_here[r->here[i]] = 1;
    for (;;) {
        if (r->steps > begun) {
            i64 known = r->here_count;
            arrivals(r);
            for (i64 i = known; i < r->here_count; i++)
                r->is_here[r->here[i]] = 1;
        }
        if (r->overload || (r->come == r->tasks && !r->here_count) || !r->unmeasured || r->now_s >= r->limit_s)
            return 0;
        /* Stalled; but new shares, computed just before this call, have a round to let tasks run */
        if (r->steps > begun && r->idle_rounds >= PATIENCE && r->come == r->tasks && r->due_s == INFINITY)
            return 0;
        if (r->steps == r->most_steps || (r->drawn && !r->orders_left))
            return 0;
        if (r->rows && r->pairs + r->here_count > r->most_pairs)
            return 0;
        i64 running = 0;
        if (r->here_count) {
            if (r->dirty) {
                r->due_s = r->reset_s + r->interval_s;
                if (r->now_s >= r->due_s)
                    return 0;
            }
            running = choose(r);
        }
        if (!step(r, running)) {
            r->orders_left += r->drawn && r->here_count; /* the order of this choice is not used */
            r->too_long = 1;
            return 0;
        }
    }
}
