/* The table in whole numbers, by kinds of rows: the same numbers as in value_grid.py. */

#include "knapsack.h"

#include <float.h>
#include <math.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "this processor computes with more digits than a double has, and would round otherwise than numpy"
#endif

#define LOPSIDED 16.0
#define SMALLEST_UNIT 1e-280
#define FACTOR 0x9E3779B97F4A7C15u /* odd, without a pattern */

i64 *take(Memory *memory, i64 count) {
    if (memory->end - memory->next < count) {
        memory->next = memory->end;
        return 0;
    }
    i64 *found = memory->next;
    memory->next += count;
    return found;
}

static i64 bit_length(i64 number) {
    i64 bits = 0;
    for (; number > 0; number >>= 1)
        bits++;
    return bits;
}

/* The rows of a table, and numbers that are equal where rows are, or null. */
typedef struct {
    const double *values;
    const i64 *numbers;
    i64 width;
} Rows;

static uint64_t hash_of(const Rows *rows, i64 row) {
    if (rows->numbers)
        return (uint64_t)rows->numbers[row] * FACTOR;
    uint64_t hash = 0;
    for (i64 size = 0; size < rows->width; size++) {
        uint64_t bits;
        memcpy(&bits, &rows->values[row * rows->width + size], sizeof bits);
        hash = (hash ^ bits) * FACTOR;
        hash ^= hash >> 29;
    }
    return hash;
}

static int alike(const Rows *rows, i64 one, i64 other) {
    if (rows->numbers)
        return rows->numbers[one] == rows->numbers[other];
    const double *first = rows->values + one * rows->width, *second = rows->values + other * rows->width;
    return memcmp(first, second, (size_t)rows->width * sizeof *first) == 0;
}

Outcome find_kinds(
    Memory *memory, const double *values, const i64 *numbers, const i64 *present, i64 rows, i64 width, Kinds *kinds) {
    const Rows table = {values, numbers, width};
    *kinds = (Kinds){rows, width, 0, take(memory, rows), take(memory, rows), take(memory, rows), take(memory, rows)};
    i64 count = 4;
    while (count < 2 * rows)
        count *= 2;
    i64 *slots = take(memory, count); /* a hash table: 1 + the kind, or 0 */
    if (!slots || !kinds->of_row || !kinds->first || !kinds->copies || !kinds->held)
        return DECLINED;
    memset(slots, 0, (size_t)count * sizeof *slots);
    for (i64 row = 0; row < rows; row++) {
        uint64_t hash = hash_of(&table, row) + (uint64_t)present[row] * FACTOR;
        hash = (hash ^ hash >> 32) * FACTOR; /* numbers may differ in their first bits only */
        i64 slot = (i64)(hash >> 20) & (count - 1), kind;
        for (;; slot = (slot + 1) & (count - 1)) {
            kind = slots[slot] - 1;
            if (kind < 0 || (kinds->held[kind] == present[row] && alike(&table, kinds->first[kind], row)))
                break;
        }
        if (kind < 0) {
            kind = kinds->count++;
            slots[slot] = kind + 1;
            kinds->first[kind] = row;
            kinds->held[kind] = present[row];
            kinds->copies[kind] = 0;
        }
        kinds->of_row[row] = kind;
        kinds->copies[kind]++;
    }
    memory->next = slots; /* free again */
    return SOLVED;
}

/* Decline tables whose best plan may be worth far less than the largest magnitude: value_grid.py removes sizes. */
static Outcome check_range(const double *values, const Kinds *kinds, double *magnitude) {
    double smallest = INFINITY, largest = -INFINITY, nothing = 0.0, staying = 0.0;
    for (i64 kind = 0; kind < kinds->count; kind++) {
        const double *row = values + kinds->first[kind] * kinds->width;
        for (i64 size = 0; size < kinds->width; size++) {
            if (row[size] != row[size])
                return DECLINED;
            largest = row[size] > largest ? row[size] : largest;
            smallest = row[size] > -INFINITY && row[size] < smallest ? row[size] : smallest;
        }
        double copies = (double)kinds->copies[kind];
        nothing += row[0] * copies;
        staying += row[kinds->held[kind] < kinds->width ? kinds->held[kind] : 0] * copies;
    }
    if (!(largest < INFINITY) || !(nothing > -INFINITY))
        return DECLINED;
    *magnitude = fmax(largest, -smallest);
    double enough = *magnitude / LOPSIDED * (1.0 + MARGIN);
    if (smallest < 0.0 && !(largest + fmin(0.0, nothing) >= enough) && !(staying >= enough))
        return DECLINED;
    return SOLVED;
}

Outcome make_grid(Memory *memory, const double *values, const Kinds *kinds, Grid *grid) {
    double largest = 0.0, unit = 1.0;
    i64 width = kinds->width, row_bits = bit_length(kinds->rows);
    int exponent = 1;
    if (check_range(values, kinds, &largest))
        return DECLINED;
    if (largest > 0.0) {
        i64 bits = PRODUCT_BITS - bit_length(width);
        bits = (bits < ENTRY_BITS ? bits : ENTRY_BITS) - row_bits;
        frexp(largest, &exponent);
        exponent -= (int)bits;
        unit = ldexp(1.0, exponent);
        if (bits < 1 || !(unit > SMALLEST_UNIT) || !(unit < 1.0 / SMALLEST_UNIT))
            return DECLINED;
    }
    grid->weight = (i64)1 << row_bits;
    grid->exponent = exponent;
    grid->entries = take(memory, kinds->count * width);
    if (!grid->entries)
        return DECLINED;
    /* To multiply by the inverse of a power of two is to divide by it. A number below 2**51 plus 1.5 * 2**52 has the
       rounded number, half to even, in its last bits: that is faster than rint(). */
    const double inverse = 1.0 / unit, shift = 0x1.8p52;
    i64 zero;
    memcpy(&zero, &shift, sizeof zero);
    for (i64 kind = 0; kind < kinds->count; kind++) {
        const double *row = values + kinds->first[kind] * width;
        i64 *entries = grid->entries + kind * width, held = kinds->held[kind];
        for (i64 size = 0; size < width; size++) {
            double shifted = row[size] * inverse + shift;
            i64 bits;
            memcpy(&bits, &shifted, sizeof bits);
            entries[size] = row[size] > -INFINITY ? (bits - zero) * grid->weight - 1 : FORBIDDEN;
        }
        if (held < width && entries[held] != FORBIDDEN)
            entries[held]++;
    }
    return SOLVED;
}
