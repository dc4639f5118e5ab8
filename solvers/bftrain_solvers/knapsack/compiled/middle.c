/* Newton's method of rounds/gavel_shares.py: the middle of the shares that are fast enough, for groups of equal tasks. */

#include "compiled.h"

#include <math.h>

#define MOST_STEPS 500
#define CLOSE 1e-9   /* the decrement at the end */
#define LONGEST 0.95 /* part of the way to the nearest limit that a step may go */
#define LOOKS 4      /* Newton steps that find the length of a step */
#define QUICK 0.25   /* a decrement below which full steps converge */

/* Factor a positive matrix in place, its lower half; return 0 if it is not positive. */
static int cholesky(double *matrix, i64 size)
{
    for (i64 i = 0; i < size; i++)
        for (i64 j = 0; j <= i; j++) {
            double sum = matrix[i * size + j];
            for (i64 k = 0; k < j; k++)
                sum -= matrix[i * size + k] * matrix[j * size + k];
            if (i == j && !(sum > 0.0))
                return 0;
            matrix[i * size + j] = i == j ? sqrt(sum) : sum / matrix[j * size + j];
        }
    return 1;
}

static void solve_lower(const double *factor, i64 size, double *x)
{
    for (i64 i = 0; i < size; i++) {
        for (i64 k = 0; k < i; k++)
            x[i] -= factor[i * size + k] * x[k];
        x[i] /= factor[i * size + i];
    }
}

static void solve_both(const double *factor, i64 size, double *x)
{
    solve_lower(factor, size, x);
    for (i64 i = size - 1; i >= 0; i--) {
        x[i] /= factor[i * size + i];
        for (i64 k = 0; k < i; k++)
            x[k] -= factor[i * size + k] * x[i];
    }
}

/* Return how far to go along a step that changes each slack by these parts of it, to the largest sum of logarithms. */
static double length_of(const double *changes, const double *weights, i64 count)
{
    double least = INFINITY;
    for (i64 i = 0; i < count; i++)
        least = fmin(least, changes[i]);
    double farthest = LONGEST / fmax(1e-12, -least), length = fmin(1.0, farthest);
    for (int look = 0; look < LOOKS; look++) {
        double rise = 0.0, bend = 0.0;
        for (i64 i = 0; i < count; i++) {
            double part = changes[i] / (1.0 + length * changes[i]);
            rise += weights[i] * part;
            bend += weights[i] * part * part;
        }
        length = fmin(farthest, fmax(0.1 * length, length + rise / bend));
    }
    return length;
}

/* Move the shares `x` (groups x kinds) of groups to the middle; every step stays inside. `table` are speeds, 0 where a
   group does not run, `nodes` those of a task, `many` the numbers of equals, `least` the speeds that are needed. `room`
   has groups (kinds (kinds + 6) + 12) + kinds (kinds + 6) numbers. Return 0, or 1 where a system was not positive. */
EXPORT int bftrain_middle(
    i64 groups, i64 kinds, const double *table, const double *nodes, const double *many, const double *counts,
    const double *least, double *room, double *x)
{
    i64 size = groups * kinds, square = kinds * kinds, slacks = size + 3 * groups + kinds;
    double *factors = room, *slope = factors + groups * square, *own = slope + size, *step = own + size;
    double *changes = step + size, *weights = changes + slacks, *shared = weights + slacks;
    double *free_nodes = shared + square, *price = free_nodes + kinds, *used = price + kinds, *column = used + kinds;
    double *state = column + kinds; /* of each group: rest, speed, over */
    for (int turn = 0; turn < MOST_STEPS; turn++) {
        for (i64 k = 0; k < kinds; k++)
            free_nodes[k] = counts[k], price[k] = used[k] = 0.0;
        for (i64 i = 0; i < square; i++)
            shared[i] = 0.0;
        for (i64 j = 0; j < groups; j++) {
            double rest = 1.0, speed = 0.0;
            for (i64 k = 0; k < kinds; k++)
                if (table[j * kinds + k] > 0.0) {
                    double share = x[j * kinds + k];
                    rest -= share;
                    speed += table[j * kinds + k] * share;
                    free_nodes[k] -= many[j] * nodes[j] * share;
                }
            state[3 * j] = rest, state[3 * j + 1] = speed, state[3 * j + 2] = speed - least[j];
        }
        for (i64 j = 0; j < groups; j++) {
            const double *speeds = table + j * kinds, *shares = x + j * kinds;
            double *factor = factors + j * square, *slopes = slope + j * kinds;
            double rest = state[3 * j], speed = state[3 * j + 1], over = state[3 * j + 2];
            double bend = 2.0 / (over * over) - 1.0 / (speed * speed), pull = 2.0 / over - 1.0 / speed;
            for (i64 k = 0; k < kinds; k++) {
                int able = speeds[k] > 0.0;
                for (i64 l = 0; l <= k; l++)
                    factor[k * kinds + l] =
                        (able && speeds[l] > 0.0 ? 1.0 / (rest * rest) : 0.0) + speeds[k] * speeds[l] * bend;
                factor[k * kinds + k] += able ? 1.0 / (shares[k] * shares[k]) : 1.0;
                slopes[k] = able ? 1.0 / shares[k] - nodes[j] / free_nodes[k] + speeds[k] * pull - 1.0 / rest : 0.0;
                own[j * kinds + k] = slopes[k];
            }
            if (!cholesky(factor, kinds))
                return 1;
            solve_both(factor, kinds, own + j * kinds);
            for (i64 k = 0; k < kinds; k++) {
                if (speeds[k] <= 0.0)
                    continue;
                price[k] += many[j] * nodes[j] * own[j * kinds + k];
                for (i64 l = 0; l < kinds; l++)
                    column[l] = l == k ? nodes[j] : 0.0;
                solve_both(factor, kinds, column);
                for (i64 l = 0; l <= k; l++)
                    shared[k * kinds + l] += speeds[l] > 0.0 ? many[j] * nodes[j] * column[l] : 0.0;
            }
        }
        for (i64 k = 0; k < kinds; k++)
            shared[k * kinds + k] += free_nodes[k] * free_nodes[k];
        if (!cholesky(shared, kinds))
            return 1;
        solve_both(shared, kinds, price);
        double gained = 0.0, *change = changes, *weight = weights;
        for (i64 j = 0; j < groups; j++) {
            const double *speeds = table + j * kinds;
            double faster = 0.0, longer = 0.0;
            for (i64 k = 0; k < kinds; k++)
                column[k] = speeds[k] > 0.0 ? nodes[j] * price[k] : 0.0;
            solve_both(factors + j * square, kinds, column);
            for (i64 k = 0; k < kinds; k++) {
                double go = speeds[k] > 0.0 ? own[j * kinds + k] - column[k] : 0.0;
                step[j * kinds + k] = go;
                if (speeds[k] <= 0.0)
                    continue;
                gained += many[j] * slope[j * kinds + k] * go;
                faster += speeds[k] * go;
                longer += go;
                used[k] += many[j] * nodes[j] * go;
                *change++ = go / x[j * kinds + k], *weight++ = many[j];
            }
            *change++ = -longer / state[3 * j], *weight++ = many[j];
            *change++ = faster / state[3 * j + 2], *weight++ = 2.0 * many[j];
            *change++ = faster / state[3 * j + 1], *weight++ = -many[j];
        }
        for (i64 k = 0; k < kinds; k++)
            *change++ = -used[k] / free_nodes[k], *weight++ = 1.0;
        double decrement = sqrt(fmax(0.0, gained));
        double length = decrement < QUICK ? 1.0 : length_of(changes, weights, change - changes);
        for (i64 i = 0; i < size; i++)
            x[i] += length * step[i];
        if (decrement <= CLOSE)
            break;
    }
    return 0;
}
