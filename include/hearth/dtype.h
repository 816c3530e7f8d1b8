/* SPDX-License-Identifier: Apache-2.0 */
/* Every dtype that torch 2.13 can name. Values are ABI; gaps are for what comes. */
#ifndef HEARTH_DTYPE_H
#define HEARTH_DTYPE_H

#include <hearth/export.h>

HEARTH_BEGIN

/* Names that torch has and hardly anybody stores. */
#define HEARTH_DTYPES_RARE(X)             \
    X(HEARTH_BITS16, 60, "bits16", 2)     \
    X(HEARTH_BITS1X8, 61, "bits1x8", 1)   \
    X(HEARTH_BITS2X4, 62, "bits2x4", 1)   \
    X(HEARTH_BITS4X2, 63, "bits4x2", 1)   \
    X(HEARTH_BITS8, 64, "bits8", 1)       \
    X(HEARTH_INT1, 65, "int1", 1)         \
    X(HEARTH_INT2, 66, "int2", 1)         \
    X(HEARTH_INT3, 67, "int3", 1)         \
    X(HEARTH_INT4, 68, "int4", 1)         \
    X(HEARTH_INT5, 69, "int5", 1)         \
    X(HEARTH_INT6, 70, "int6", 1)         \
    X(HEARTH_INT7, 71, "int7", 1)         \
    X(HEARTH_UINT1, 72, "uint1", 1)       \
    X(HEARTH_UINT2, 73, "uint2", 1)       \
    X(HEARTH_UINT3, 74, "uint3", 1)       \
    X(HEARTH_UINT4, 75, "uint4", 1)       \
    X(HEARTH_UINT5, 76, "uint5", 1)       \
    X(HEARTH_UINT6, 77, "uint6", 1)       \
    X(HEARTH_UINT7, 78, "uint7", 1)       \
    X(HEARTH_QINT32, 79, "qint32", 4)     \
    X(HEARTH_QINT8, 80, "qint8", 1)       \
    X(HEARTH_QUINT8, 81, "quint8", 1)     \
    X(HEARTH_QUINT2X4, 82, "quint2x4", 1) \
    X(HEARTH_QUINT4X2, 83, "quint4x2", 1)

/* X(enumerator, value, "torch name", item size in bytes) */
#define HEARTH_DTYPES(X)                                  \
    X(HEARTH_FLOAT64, 10, "float64", 8)                   \
    X(HEARTH_FLOAT32, 11, "float32", 4)                   \
    X(HEARTH_FLOAT16, 12, "float16", 2)                   \
    X(HEARTH_BFLOAT16, 13, "bfloat16", 2)                 \
    X(HEARTH_FLOAT8_E4M3FN, 20, "float8_e4m3fn", 1)       \
    X(HEARTH_FLOAT8_E4M3FNUZ, 21, "float8_e4m3fnuz", 1)   \
    X(HEARTH_FLOAT8_E5M2, 22, "float8_e5m2", 1)           \
    X(HEARTH_FLOAT8_E5M2FNUZ, 23, "float8_e5m2fnuz", 1)   \
    X(HEARTH_FLOAT8_E8M0FNU, 24, "float8_e8m0fnu", 1)     \
    X(HEARTH_FLOAT4_E2M1FN_X2, 25, "float4_e2m1fn_x2", 1) \
    X(HEARTH_COMPLEX128, 30, "complex128", 16)            \
    X(HEARTH_COMPLEX64, 31, "complex64", 8)               \
    X(HEARTH_COMPLEX32, 32, "complex32", 4)               \
    X(HEARTH_INT64, 40, "int64", 8)                       \
    X(HEARTH_INT32, 41, "int32", 4)                       \
    X(HEARTH_INT16, 42, "int16", 2)                       \
    X(HEARTH_INT8, 43, "int8", 1)                         \
    X(HEARTH_UINT64, 44, "uint64", 8)                     \
    X(HEARTH_UINT32, 45, "uint32", 4)                     \
    X(HEARTH_UINT16, 46, "uint16", 2)                     \
    X(HEARTH_UINT8, 47, "uint8", 1)                       \
    X(HEARTH_BOOL, 48, "bool", 1)                         \
    HEARTH_DTYPES_RARE(X)

enum hearth_dtype {
    HEARTH_DTYPE_NONE = 0,
#define HEARTH_X(name, value, text, bytes) name = value,
    HEARTH_DTYPES(HEARTH_X)
#undef HEARTH_X
};

/* "float32"; NULL for a value that is none. Static storage. */
HEARTH_API const char *hearth_dtype_name(enum hearth_dtype dtype);

/* HEARTH_DTYPE_NONE for a name that is none. Canonical names only: "float32", not "float". */
HEARTH_API enum hearth_dtype hearth_dtype_parse(const char *name);

/* Bytes of one element; 0 for a value that is none. */
HEARTH_API unsigned hearth_dtype_bytes(enum hearth_dtype dtype);

HEARTH_END

#endif
