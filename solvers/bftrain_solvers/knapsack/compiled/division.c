/* Division of nodes over the rows that have a choice, with the least loss: a table over rows and nodes. */

#include "knapsack.h"

#include <string.h>

#define LARGEST_REAL ((i64)1 << 52) /* sums of losses up to it are exact as floating-point numbers */
#define MOST_WORK 16000000          /* sums tried: a few milliseconds */

/* A loss in a table. Real numbers are used where they are exact: processors find the smaller ones of several at once. */
typedef union {
    double real;
    i64 whole;
} Loss;

/* A row with several candidates, at the places begin .. end - 1. losses[n - low]: the smallest loss of it and all later
   ones if they take n nodes above their least; low and high bound these nodes. */
typedef struct {
    i64 row, begin, end, before, low, high;
    Loss *losses;
} Stage;

#define WORDS_OF_STAGE 7

static i64 loss_of(const Stage *stage, i64 nodes, int real) {
    Loss loss = stage->losses[nodes - stage->low];
    return real ? (i64)loss.real : loss.whole;
}

/* By kind: the only size without a loss, and how many rows can have a larger and a smaller one. */
typedef struct {
    i64 *lossless, *growing, *shrinking;
} Sparing;

/* If only one size of a kind loses nothing, few of its rows can have another. */
static void find_sparing(const Candidates *candidates, const Kinds *kinds, Sparing *sparing) {
    for (i64 kind = 0; kind < kinds->count; kind++) {
        i64 begin = candidates->start[kind], end = candidates->start[kind + 1], lossless = -1, many = 0;
        i64 larger = NEVER, smaller = NEVER;
        for (i64 each = begin; each < end; each++)
            if (candidates->loss[each] == 0) {
                lossless = each;
                many++;
            }
        for (i64 each = begin; each < lossless; each++)
            smaller = candidates->loss[each] < smaller ? candidates->loss[each] : smaller;
        for (i64 each = lossless + 1; each < end; each++)
            larger = candidates->loss[each] < larger ? candidates->loss[each] : larger;
        sparing->lossless[kind] = lossless;
        sparing->growing[kind] = many != 1 ? kinds->rows : larger < NEVER ? candidates->budget / larger : 0;
        sparing->shrinking[kind] = many != 1 ? kinds->rows : smaller < NEVER ? candidates->budget / smaller : 0;
    }
}

/* Write the least size of each row and the stages; return their number. `reach`: nodes that all stages can take. Of equal
   rows the earlier ones have more: the first few may have larger sizes than the lossless one, the last few smaller ones. */
static i64 make_stages(
    const Candidates *candidates, const Kinds *kinds, const Sparing *sparing, i64 *seen, Stage *stages, i64 *sizes,
    i64 *reach) {
    i64 count = 0;
    *reach = 0;
    memset(seen, 0, (size_t)kinds->count * sizeof *seen);
    for (i64 row = 0; row < kinds->rows; row++) {
        i64 kind = kinds->of_row[row], place = seen[kind]++, copies = kinds->copies[kind];
        i64 begin = candidates->start[kind], end = candidates->start[kind + 1];
        if (sparing->growing[kind] + sparing->shrinking[kind] < copies) {
            if (place >= sparing->growing[kind])
                end = sparing->lossless[kind] + 1;
            if (place < copies - sparing->shrinking[kind])
                begin = sparing->lossless[kind];
        }
        sizes[row] = candidates->size[begin];
        if (end - begin < 2)
            continue;
        stages[count].row = row;
        stages[count].begin = begin;
        stages[count].end = end;
        stages[count++].before = *reach;
        *reach += candidates->size[end - 1] - sizes[row];
    }
    return count;
}

/* A choice of a stage: its losses at the places first .. last - 1 are `loss` more than the next stage's at place - shift. */
typedef struct {
    i64 shift, first, last, loss;
} Choice;

static void lower(Loss *restrict into, const Loss *restrict from, const Choice *choice, i64 first, i64 last, int real) {
    double loss = (double)choice->loss;
    into += first, from += first - choice->shift;
    if (real)
        for (i64 place = 0; place < last - first; place++) {
            double sum = from[place].real + loss;
            into[place].real = sum < into[place].real ? sum : into[place].real;
        }
    else
        for (i64 place = 0; place < last - first; place++) {
            i64 sum = from[place].whole + choice->loss;
            into[place].whole = sum < into[place].whole ? sum : into[place].whole;
        }
}

/* The same for four choices of real losses together, which reads and writes each place once. */
static void lower_by_four(Loss *restrict into, const Loss *restrict from, const Choice *four, i64 first, i64 last) {
    const Loss *a = from + (first - four[0].shift), *b = from + (first - four[1].shift);
    const Loss *c = from + (first - four[2].shift), *d = from + (first - four[3].shift);
    double of_a = (double)four[0].loss, of_b = (double)four[1].loss;
    double of_c = (double)four[2].loss, of_d = (double)four[3].loss;
    into += first;
    for (i64 place = 0; place < last - first; place++) {
        double sum_a = a[place].real + of_a, sum_b = b[place].real + of_b;
        double sum_c = c[place].real + of_c, sum_d = d[place].real + of_d;
        sum_a = sum_b < sum_a ? sum_b : sum_a;
        sum_c = sum_d < sum_c ? sum_d : sum_c;
        sum_a = sum_c < sum_a ? sum_c : sum_a;
        into[place].real = sum_a < into[place].real ? sum_a : into[place].real;
    }
}

static void lower_by_all(Loss *into, const Loss *from, const Choice *choices, i64 count, int real) {
    i64 first = 0, last = count == 4 && real ? INT64_MAX : 0; /* the places of all four */
    for (i64 each = 0; each < count; each++) {
        first = choices[each].first > first ? choices[each].first : first;
        last = choices[each].last < last ? choices[each].last : last;
    }
    if (first < last)
        lower_by_four(into, from, choices, first, last);
    else
        last = first;
    for (const Choice *choice = choices; choice < choices + count; choice++) {
        lower(into, from, choice, choice->first, first < choice->last ? first : choice->last, real);
        lower(into, from, choice, last > choice->first ? last : choice->first, choice->last, real);
    }
}

/* Fill the table of a stage from that of the next one. */
static void add_stage(const Candidates *candidates, Stage *here, const Stage *later, int real) {
    i64 width = here->high - here->low + 1, least = candidates->size[here->begin], count = 0;
    Loss never = {.whole = NEVER};
    Choice choices[4];
    if (real)
        never.real = (double)NEVER;
    for (i64 place = 0; place < width; place++)
        here->losses[place] = never;
    for (i64 each = here->begin; each < here->end; each++) {
        i64 shift = later->low + candidates->size[each] - least - here->low, last = later->high - later->low + 1 + shift;
        Choice choice = {shift, shift > 0 ? shift : 0, last < width ? last : width, candidates->loss[each]};
        if (choice.first < choice.last)
            choices[count++] = choice;
        if (count == 4 || each == here->end - 1) {
            lower_by_all(here->losses, later->losses, choices, count, real);
            count = 0;
        }
    }
}

/* Compute all tables, the last stage first; stages[count] stands for no row at all. */
static Outcome fill_tables(
    Memory *memory, const Candidates *candidates, Stage *stages, i64 count, i64 nodes, i64 used, i64 reach,
    int real) {
    i64 work = 0, *nothing = take(memory, 1);
    if (!nothing || used > reach)
        return DECLINED;
    *nothing = 0; /* all bits of a real 0 are 0, too */
    stages[count].low = stages[count].high = 0;
    stages[count].losses = (Loss *)nothing;
    for (i64 each = 0; each < count; each++) {
        Stage *here = &stages[each];
        i64 others = reach - here->before;
        here->low = used > here->before ? used - here->before : 0;
        here->high = others < nodes ? others : nodes;
        i64 width = here->high - here->low + 1;
        work += width * (here->end - here->begin);
        here->losses = width > 0 && work <= MOST_WORK ? (Loss *)take(memory, width) : 0;
        if (!here->losses)
            return DECLINED;
    }
    for (i64 each = count - 1; each >= 0; each--)
        add_stage(candidates, &stages[each], &stages[each + 1], real);
    return SOLVED;
}

/* Give every stage in order the most nodes that still lead to the smallest loss. */
static Outcome retrace(
    const Candidates *candidates, const Stage *stages, i64 count, i64 nodes, i64 *sizes, int real) {
    for (const Stage *here = stages; here < stages + count; here++) {
        const Stage *later = here + 1;
        i64 goal = loss_of(here, nodes, real), least = sizes[here->row], choice = here->end - 1;
        for (; choice >= here->begin; choice--) {
            i64 left = nodes - (candidates->size[choice] - least);
            if (left < later->low || left > later->high)
                continue;
            if (loss_of(later, left, real) + candidates->loss[choice] == goal)
                break;
        }
        if (choice < here->begin)
            return DECLINED;
        sizes[here->row] = candidates->size[choice];
        nodes -= candidates->size[choice] - least;
    }
    return SOLVED;
}

/* Find the sizes with the least loss; of equal ones those with fewest nodes, then with more for earlier rows. */
Outcome divide(
    Memory *memory, const Price *price, const Kinds *kinds, i64 pool, const Candidates *candidates, i64 *sizes) {
    Stage *stages = (Stage *)take(memory, WORDS_OF_STAGE * (kinds->rows + 1));
    i64 *seen = take(memory, kinds->count);
    Sparing sparing = {take(memory, kinds->count), take(memory, kinds->count), take(memory, kinds->count)};
    if (!stages || !seen || !sparing.lossless || !sparing.growing || !sparing.shrinking)
        return DECLINED;
    find_sparing(candidates, kinds, &sparing);
    i64 reach, count = make_stages(candidates, kinds, &sparing, seen, stages, sizes, &reach), nodes = pool;
    for (i64 row = 0; row < kinds->rows; row++)
        nodes -= sizes[row];
    if (nodes < 0)
        return DECLINED;
    int real = candidates->budget <= LARGEST_REAL;
    i64 unused = candidates->budget / price->rise; /* to leave more nodes idle would lose too much */
    i64 used = nodes > unused ? nodes - unused : 0;
    if (fill_tables(memory, candidates, stages, count, nodes, used, reach, real))
        return DECLINED;
    i64 best = NEVER, taken = 0;
    for (i64 each = stages[0].low; each <= stages[0].high; each++) {
        i64 loss = loss_of(&stages[0], each, real) + price->rise * (nodes - each);
        if (loss < best) {
            best = loss;
            taken = each;
        }
    }
    return best > candidates->budget ? DECLINED : retrace(candidates, stages, count, taken, sizes, real);
}
