/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors whose every element is known: a function of tensor, step and place. They are cut for a
 * number of ranks in several ways, so that each world saves boxes and another one asks for others.
 */
#ifndef HEARTH_TESTS_MODEL_H
#define HEARTH_TESTS_MODEL_H

#include <hearth/hearth.h>

#define TENSORS 8u
#define BIG     7u /* its rows are the caller's choice */
#define DIMS    3u

enum cut {
    CUT_ROWS,    /* the first dimension */
    CUT_UNEVEN,  /* the first dimension: small boxes first, some of them empty */
    CUT_COLUMNS, /* the last dimension */
    CUT_BOTH,    /* first and last */
    CUT_LAST,    /* whole, the last rank alone */
    CUT_WHOLE,   /* whole, every rank */
};

enum layout { LAYOUT_C, LAYOUT_FORTRAN, LAYOUT_GAPS };

struct part {
    struct hearth_piece piece; /* data is ours */
    uint32_t tensor;
    int64_t shape[DIMS], strides[DIMS], global[DIMS], offset[DIMS];
    unsigned char *data;
    size_t bytes; /* of data, gaps included */
};

/* 0: this rank has nothing of it. Free: part_free(). */
int part_make(struct part *p, uint32_t tensor, enum cut cut, uint32_t rank, uint32_t world,
        int64_t big_rows, enum layout layout);
void part_box(struct part *p, const int64_t *offset, const int64_t *shape, enum layout layout);
void part_free(struct part *p);
void part_fill(const struct part *p, uint64_t step, unsigned char *data);
int part_right(const struct part *p, uint64_t step); /* and nothing beside the box was written */
enum cut cut_of(uint32_t tensor);
enum cut cut_other(enum cut cut, unsigned turn);
uint64_t element(uint32_t tensor, uint64_t step, uint64_t place);

#endif
