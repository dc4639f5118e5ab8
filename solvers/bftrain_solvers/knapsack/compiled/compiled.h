/* What all compiled code shares. */

#ifndef BFTRAIN_COMPILED_H
#define BFTRAIN_COMPILED_H

#include <stdint.h>

typedef int64_t i64;

#define EXPORT __attribute__((visibility("default")))

#endif
