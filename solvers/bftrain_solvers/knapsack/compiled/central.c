/* The interior-point method of rounds/gavel_shares.py, on columns with few entries each.

   Sums have a fixed order and nothing depends on a library, so all machines get the same shares to the last bit. */

#include "compiled.h"

#include <math.h>

#define PRECISE 1e-8    /* relative: the error of the constraints and the gap at the end */
#define MOST_STEPS 100
#define BALANCE_STEPS 3 /* turns of scaling rows and columns */
#define FARTHEST 0.999  /* the longest step, as a part of the full one */
#define SHORTER 0.99    /* part of the way to the limits that a step goes */
#define RELATIVE 1e-14  /* added to diagonals, relative to them: they stay positive in spite of rounding */

/* Columns 0 .. bounded - 1 are at least 0, a last one is free if `free` is 1. The entries of column c are at
   start[c] .. start[c + 1] - 1, by ascending row. Each constraint has a place: bounds first, then rows. */
typedef struct {
    i64 bounded, free, rows, all; /* all: constraints, bounded + rows */
    const i64 *start, *row;
    double *entry; /* times the number of equals */
    const double *weights, *equals;
    double *bounds, *bound_scale, *rise, *cost, *limits;
    i64 *first;     /* of each row of the factor, the first place that may not be 0 */
    double *factor; /* rows x rows */
    double *squares, *ratio, *part, *slope;
    double curve; /* of the free column */
} Program;

static double dot(const double *a, const double *b, i64 count)
{
    double even = 0.0, odd = 0.0, third = 0.0, fourth = 0.0;
    i64 i = 0;
    for (; i + 3 < count; i += 4) {
        even += a[i] * b[i];
        odd += a[i + 1] * b[i + 1];
        third += a[i + 2] * b[i + 2];
        fourth += a[i + 3] * b[i + 3];
    }
    for (; i < count; i++)
        even += a[i] * b[i];
    return (even + odd) + (third + fourth);
}

/* Set `products` to the dot products of four lines, which begin `apart` numbers apart, with the line `other`. With AVX2
   this takes the time of one product. Each sum has the order of `dot`, so the bits are equal. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(NARROW)
typedef double Four __attribute__((vector_size(32), aligned(8)));
#define WIDE __builtin_cpu_supports("avx2")

__attribute__((target("avx2"))) static void
four_dots(const double *lines, i64 apart, const double *other, i64 count, double *products)
{
    Four sums[4] = {{0.0}};
    i64 i = 0;
    for (; i + 3 < count; i += 4)
        for (int k = 0; k < 4; k++)
            sums[k] += *(const Four *)(lines + k * apart + i) * *(const Four *)(other + i);
    for (; i < count; i++)
        for (int k = 0; k < 4; k++)
            sums[k][0] += lines[k * apart + i] * other[i];
    for (int k = 0; k < 4; k++)
        products[k] = (sums[k][0] + sums[k][1]) + (sums[k][2] + sums[k][3]);
}
#else
#define WIDE 0
static void four_dots(const double *lines, i64 apart, const double *other, i64 count, double *products)
{
    for (int k = 0; k < 4; k++)
        products[k] = dot(lines + k * apart, other, count);
}
#endif

static double norm(const double *values, const double *weights, i64 count, int inverse)
{
    double sum = 0.0;
    for (i64 i = 0; i < count; i++)
        sum += inverse ? values[i] * values[i] / weights[i] : values[i] * values[i] * weights[i];
    return sqrt(sum);
}

/* Give rows and columns similar largest entries. `times` are the numbers of equals by entry. */
static void balance(Program *p, const double *entries, const double *times, const double *limits, double *room)
{
    i64 columns = p->bounded + p->free;
    double *scale = room, *largest = scale + columns, *row_scale = largest + columns, *row_largest = row_scale + p->rows;
    for (i64 c = 0; c < columns; c++)
        scale[c] = 1.0;
    for (i64 r = 0; r < p->rows; r++)
        row_scale[r] = 1.0;
    for (i64 c = 0; c < p->bounded; c++)
        p->bounds[c] = p->bound_scale[c] = 1.0;
    for (i64 e = 0; e < p->start[columns]; e++)
        p->entry[e] = fabs(entries[e]);
    for (int turn = 0; turn < BALANCE_STEPS; turn++) {
        for (i64 r = 0; r < p->rows; r++)
            row_largest[r] = 0.0;
        for (i64 c = 0; c < columns; c++) {
            largest[c] = c < p->bounded ? p->bounds[c] : 0.0;
            for (i64 e = p->start[c]; e < p->start[c + 1]; e++) {
                largest[c] = fmax(largest[c], p->entry[e]);
                row_largest[p->row[e]] = fmax(row_largest[p->row[e]], p->entry[e]);
            }
            largest[c] = sqrt(largest[c]);
        }
        for (i64 r = 0; r < p->rows; r++) {
            row_largest[r] = sqrt(row_largest[r]);
            row_scale[r] *= row_largest[r];
        }
        for (i64 c = 0; c < columns; c++) {
            for (i64 e = p->start[c]; e < p->start[c + 1]; e++)
                p->entry[e] = p->entry[e] / row_largest[p->row[e]] / largest[c];
            scale[c] *= largest[c];
            if (c < p->bounded) {
                double own = sqrt(p->bounds[c]);
                p->bounds[c] = p->bounds[c] / own / largest[c];
                p->bound_scale[c] *= own;
            }
        }
    }
    for (i64 r = 0; r < p->rows; r++)
        p->rise[r] = 0.0;
    for (i64 c = 0; c < columns; c++)
        for (i64 e = p->start[c]; e < p->start[c + 1]; e++) {
            p->entry[e] = copysign(p->entry[e], entries[e]) * times[e];
            if (c >= p->bounded)
                p->rise[p->row[e]] = p->entry[e];
        }
    for (i64 c = 0; c < columns; c++)
        p->cost[c] = c < p->bounded ? 0.0 : -1.0 / scale[c];
    for (i64 i = 0; i < p->all; i++)
        p->limits[i] = i < p->bounded ? 0.0 : limits[i - p->bounded] / row_scale[i - p->bounded];
}

/* Set `sum` to the left sides of bounds and rows. */
static void apply(const Program *p, const double *x, double *sum)
{
    double *rows = sum + p->bounded;
    for (i64 r = 0; r < p->rows; r++)
        rows[r] = p->free ? p->rise[r] * x[p->bounded] : 0.0;
    for (i64 c = 0; c < p->bounded; c++) {
        sum[c] = -p->bounds[c] * x[c];
        for (i64 e = p->start[c]; e < p->start[c + 1]; e++)
            rows[p->row[e]] += p->entry[e] * x[c];
    }
}

/* Return the sum of the duals of one column. */
static double dual_sum(const Program *p, const double *rows, i64 column)
{
    double sum = 0.0;
    for (i64 e = p->start[column]; e < p->start[column + 1]; e++)
        sum += p->entry[e] * rows[p->row[e]];
    return sum;
}

/* Solve with the factor, in place. */
static void solve_rows(const Program *p, double *x)
{
    i64 rows = p->rows;
    for (i64 i = 0; i < rows; i++) {
        const double *line = p->factor + i * rows;
        i64 first = p->first[i];
        x[i] = (x[i] - dot(line + first, x + first, i - first)) / line[i];
    }
    for (i64 i = rows - 1; i >= 0; i--) {
        const double *line = p->factor + i * rows;
        x[i] /= line[i];
        for (i64 k = p->first[i]; k < i; k++)
            x[k] -= line[k] * x[i];
    }
}

/* Factor four lines with equal `first` left of column i. */
static void factor_four(Program *p, i64 i)
{
    double *lines = p->factor + i * p->rows, products[4];
    for (i64 j = p->first[i]; j < i; j++) {
        const double *above = p->factor + j * p->rows;
        i64 from = p->first[i] > p->first[j] ? p->first[i] : p->first[j];
        four_dots(lines + from, p->rows, above + from, j - from, products);
        for (int k = 0; k < 4; k++)
            lines[k * p->rows + j] = (lines[k * p->rows + j] - products[k]) / above[j];
    }
}

/* Factor line i from column `begin` on; return whether its diagonal is positive. */
static int factor_line(Program *p, i64 i, i64 begin)
{
    double *line = p->factor + i * p->rows;
    i64 first = p->first[i];
    line[i] += p->squares[p->bounded + i] + RELATIVE * line[i];
    for (i64 j = begin; j < i; j++) {
        const double *above = p->factor + j * p->rows;
        i64 from = first > p->first[j] ? first : p->first[j];
        if (from < j)
            line[j] -= dot(line + from, above + from, j - from);
        line[j] /= above[j];
    }
    double rest = line[i] - dot(line + first, line + first, i - first);
    line[i] = sqrt(rest);
    return rest > 0.0 && !isinf(rest);
}

/* Factor the system for these squares of scaled slacks over duals; return whether it is positive. */
static int factor(Program *p)
{
    i64 rows = p->rows;
    for (i64 i = 0; i < rows; i++)
        for (i64 j = p->first[i]; j <= i; j++)
            p->factor[i * rows + j] = 0.0;
    for (i64 c = 0; c < p->bounded; c++) {
        p->ratio[c] = p->squares[c] / (p->bounds[c] * p->bounds[c]);
        for (i64 e = p->start[c]; e < p->start[c + 1]; e++) {
            double weighted = p->entry[e] * p->ratio[c], *line = p->factor + p->row[e] * rows;
            for (i64 other = p->start[c]; other <= e; other++)
                line[p->row[other]] += weighted * p->entry[other];
        }
    }
    for (i64 i = 0, many; i < rows; i += many) {
        int alike = WIDE && i + 4 <= rows;
        for (int k = 1; alike && k < 4; k++)
            alike = p->first[i + k] == p->first[i];
        many = alike ? 4 : 1;
        if (alike)
            factor_four(p, i);
        for (i64 line = i; line < i + many; line++)
            if (!factor_line(p, line, alike ? i : p->first[line]))
                return 0;
    }
    if (p->free) {
        for (i64 r = 0; r < rows; r++)
            p->slope[r] = p->rise[r];
        solve_rows(p, p->slope);
        p->curve = dot(p->rise, p->slope, rows);
    }
    return 1;
}

/* Solve "sum of duals = a" and "left sides(x) - squares * z = b". */
static void solve(Program *p, const double *a, const double *b, double *x, double *z)
{
    double *rows = z + p->bounded;
    for (i64 r = 0; r < p->rows; r++)
        rows[r] = -b[p->bounded + r];
    for (i64 c = 0; c < p->bounded; c++) {
        p->part[c] = p->ratio[c] * a[c] - b[c] / p->bounds[c];
        for (i64 e = p->start[c]; e < p->start[c + 1]; e++)
            rows[p->row[e]] += p->entry[e] * p->part[c];
    }
    solve_rows(p, rows);
    if (p->free) {
        double height = (a[p->bounded] - dot(p->rise, rows, p->rows)) / p->curve;
        x[p->bounded] = height;
        for (i64 r = 0; r < p->rows; r++)
            rows[r] += p->slope[r] * height;
    }
    for (i64 c = 0; c < p->bounded; c++) {
        x[c] = p->part[c] - p->ratio[c] * dual_sum(p, rows, c);
        z[c] = -(p->bounds[c] * x[c] + b[c]) / p->squares[c];
    }
}

/* Shift values so that all are above 0. */
static void move_inside(double *values, i64 count)
{
    double least = INFINITY;
    for (i64 i = 0; i < count; i++)
        least = fmin(least, values[i]);
    for (i64 i = 0; i < count; i++)
        values[i] += 1.0 + fmax(-0.99, -least);
}

/* Return how far to go along a step that changes each positive value by these parts of it. */
static double step_length(double least, double tau_part, double kappa_part)
{
    double steepest = fmax(-least, fmax(-tau_part, -kappa_part));
    return steepest > 0.0 ? fmin(FARTHEST, 1.0 / steepest) : FARTHEST;
}

static int finite(const double *values, i64 count)
{
    for (i64 i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return 0;
    return 1;
}

/* Set `first` and the equal numbers of all constraints and columns. */
static void arrange(Program *p, const double *columns, const double *rows, double *weights, double *equals)
{
    for (i64 i = 0; i < p->all; i++)
        weights[i] = i < p->bounded ? columns[i] : rows[i - p->bounded];
    for (i64 c = 0; c < p->bounded + p->free; c++)
        equals[c] = c < p->bounded ? columns[c] : 1.0;
    for (i64 r = 0; r < p->rows; r++)
        p->first[r] = r;
    for (i64 c = 0; c < p->bounded; c++)
        for (i64 e = p->start[c]; e < p->start[c + 1]; e++)
            if (p->row[p->start[c]] < p->first[p->row[e]])
                p->first[p->row[e]] = p->row[p->start[c]];
}

/* Set `found` to the values of the bounded columns in the middle of the optimal solutions; return 0, or 1 where a
   system had no positive factor. `room` has 16 (bounded + rows) + 7 (bounded + free) + rows * rows + entries numbers of
   8 bytes. */
EXPORT int bftrain_central_columns(
    i64 bounded, i64 free, i64 rows, const i64 *start, const i64 *row, const double *entries, const double *times,
    const double *limits, const double *columns, const double *row_counts, double *room, double *found)
{
    i64 all = bounded + rows, n = bounded + free;
    Program program = {.bounded = bounded, .free = free, .rows = rows, .all = all, .start = start, .row = row}, *p = &program;
    double *weights = room, *equals = weights + all;
    p->weights = weights, p->equals = equals;
    p->bounds = equals + n, p->bound_scale = p->bounds + bounded, p->rise = p->bound_scale + bounded;
    p->cost = p->rise + rows, p->limits = p->cost + n, p->squares = p->limits + all;
    p->ratio = p->squares + all, p->part = p->ratio + bounded, p->slope = p->part + bounded;
    double *x = p->slope + rows, *x1 = x + n, *x2 = x1 + n, *dual_rest = x2 + n, *dual_part = dual_rest + n;
    double *z = dual_part + n, *z1 = z + all, *z2 = z1 + all, *s = z2 + all, *rest = s + all, *b = rest + all;
    double *point = b + all, *d_z = point + all, *d_s = d_z + all;
    p->entry = d_s + all, p->factor = p->entry + start[n], p->first = (i64 *)(p->factor + rows * rows);
    arrange(p, columns, row_counts, weights, equals);
    balance(p, entries, times, limits, x); /* there is room for 2 n + 2 rows numbers */

    for (i64 i = 0; i < all; i++)
        p->squares[i] = 1.0 / weights[i], b[i] = 0.0;
    if (!factor(p))
        return 1;
    for (i64 c = 0; c < n; c++)
        dual_part[c] = 0.0, dual_rest[c] = -p->cost[c];
    solve(p, dual_rest, b, x1, z1);
    solve(p, dual_part, p->limits, x, z);
    double total = 1.0, tau = 1.0, kappa = 1.0;
    for (i64 i = 0; i < all; i++) {
        s[i] = -z[i] / weights[i];
        z[i] = z1[i] / weights[i];
        total += weights[i];
    }
    move_inside(s, all);
    move_inside(z, all);
    for (i64 i = 0; i < all; i++)
        z[i] *= weights[i];
    double limit_size = norm(p->limits, weights, all, 0), cost_size = norm(p->cost, equals, n, 1);

    for (int turn = 0; turn < MOST_STEPS; turn++) {
        apply(p, x, rest);
        for (i64 i = 0; i < all; i++)
            rest[i] += s[i] - p->limits[i] * tau;
        for (i64 c = 0; c < n; c++) {
            double own = dual_sum(p, z + bounded, c);
            dual_rest[c] = -(c < bounded ? own - p->bounds[c] * z[c] : own) - p->cost[c] * tau;
        }
        double gap = dot(s, z, all), value = dot(p->cost, x, n), dual = dot(p->limits, z, all);
        double primal_size = norm(x, equals, n, 0) + norm(s, weights, all, 0), dual_size = norm(z, weights, all, 1);
        double error = norm(rest, weights, all, 0) / fmax(1.0, limit_size + primal_size) / tau;
        double dual_error = norm(dual_rest, equals, n, 1) / fmax(1.0, cost_size + dual_size) / tau;
        if (fmax(error, dual_error) < PRECISE && gap < PRECISE * fmax(1.0, -value / tau))
            break;
        double mean = (gap + kappa * tau) / total;
        for (i64 i = 0; i < all; i++) {
            p->squares[i] = s[i] / z[i];
            point[i] = sqrt(s[i] * z[i]);
            b[i] = s[i] - rest[i];
        }
        if (!factor(p))
            break; /* numbers too far apart for more digits */
        for (i64 c = 0; c < n; c++)
            dual_part[c] = -p->cost[c];
        solve(p, dual_part, p->limits, x1, z1);
        solve(p, dual_rest, b, x2, z2);
        double balance_rest = kappa + value + dual;
        double slope = kappa / tau - dot(p->cost, x1, n) - dot(p->limits, z1, all);
        double d_tau = (balance_rest - kappa + dot(p->cost, x2, n) + dot(p->limits, z2, all)) / slope;
        double least = INFINITY, d_kappa = -kappa - kappa / tau * d_tau;
        for (i64 i = 0; i < all; i++) {
            d_z[i] = sqrt(p->squares[i]) * (z2[i] + d_tau * z1[i]);
            d_s[i] = -d_z[i] - point[i];
            least = fmin(least, fmin(d_s[i], d_z[i]) / point[i]);
        }
        double length = step_length(least, d_tau / tau, d_kappa / kappa), left = 1.0 - length;
        double centering = fmin(fmax(left * left * left, 1e-4), 1.0), keep = 1.0 - centering;
        for (i64 i = 0; i < all; i++) {
            d_s[i] = (point[i] * point[i] + d_s[i] * d_z[i] - centering * mean * weights[i]) / point[i];
            b[i] = sqrt(p->squares[i]) * d_s[i] - keep * rest[i];
        }
        double both = kappa * tau + d_kappa * d_tau - centering * mean;
        for (i64 c = 0; c < n; c++)
            dual_part[c] = keep * dual_rest[c];
        solve(p, dual_part, b, x2, z2);
        d_tau = (keep * balance_rest - both / tau + dot(p->cost, x2, n) + dot(p->limits, z2, all)) / slope;
        d_kappa = -(both + kappa * d_tau) / tau;
        least = INFINITY;
        for (i64 i = 0; i < all; i++) {
            d_z[i] = sqrt(p->squares[i]) * (z2[i] + d_tau * z1[i]);
            d_s[i] = -d_s[i] - d_z[i];
            least = fmin(least, fmin(d_s[i], d_z[i]) / point[i]);
        }
        if (!isfinite(d_tau) || !finite(d_z, all))
            break;
        length = SHORTER * step_length(least, d_tau / tau, d_kappa / kappa);
        for (i64 c = 0; c < n; c++)
            x[c] += length * (x2[c] + d_tau * x1[c]);
        for (i64 i = 0; i < all; i++) {
            double ratio = sqrt(p->squares[i]);
            z[i] += length * d_z[i] / ratio;
            s[i] += length * ratio * d_s[i];
        }
        tau += length * d_tau;
        kappa += length * d_kappa;
    }
    for (i64 c = 0; c < bounded; c++)
        found[c] = s[c] * p->bound_scale[c] / tau;
    return 0;
}
