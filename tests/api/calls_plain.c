/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that have neither a job nor an engine: names, numbers, and what is read out of bytes. */
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct hearth_metadata_writer *writer;
static struct hearth_metadata *md;
static struct hearth_values *values;
static struct hearth_value value;
static struct hearth_bootstrap *meeting;
static void *pickle;
static size_t pickle_len;

static int version(void)
{
    return hearth_version() == NULL;
}

static int version_number(void)
{
    return hearth_version_number() == 0;
}

static int code_text(void)
{
    return hearth_strerror(HEARTH_EBUSY) == NULL;
}

static int dtype_name(void)
{
    return hearth_dtype_name(HEARTH_FLOAT32) == NULL;
}

static int dtype_parse(void)
{
    return hearth_dtype_parse("float32") != HEARTH_FLOAT32;
}

static int dtype_bytes(void)
{
    return hearth_dtype_bytes(HEARTH_FLOAT32) != 4;
}

static int opts_from_env(void)
{
    struct hearth_opts o = HEARTH_OPTS_INIT;

    return hearth_opts_from_env(&o, &calls_err);
}

/* ---- ranks that find each other, before they do
 * ------------------------------------------------- */

static int tcp(void)
{
    return hearth_bootstrap_tcp("127.0.0.1", 1, 0, 2, 1000, &meeting, &calls_err);
}

static int tcp_from_env(void)
{
    struct hearth_bootstrap *none = NULL;
    int rc = hearth_bootstrap_tcp_from_env(1000, &none, NULL, NULL, NULL);

    hearth_bootstrap_close(none);
    return rc == HEARTH_ETIMEOUT; /* whether torchrun's variables are there or not */
}

static int hostfile(void)
{
    struct hearth_bootstrap *none = NULL;
    int rc = hearth_bootstrap_hostfile("/dev/null", 0, 1000, &none, NULL, NULL);

    hearth_bootstrap_close(none);
    return rc != HEARTH_EINVAL; /* that is no file */
}

static int meeting_close(void)
{
    hearth_bootstrap_close(meeting);
    return 0;
}

static int pmix(void)
{
    struct hearth_bootstrap *none = NULL;
    int rc = hearth_bootstrap_pmix(1000, &none, NULL, NULL, NULL);

    hearth_bootstrap_close(none);
    return rc == HEARTH_EINVAL; /* there may be one here, or none */
}

/* ---- .metadata
 * ------------------------------------------------------------------------------------ */

static const int64_t two[] = { 2 }, zero[] = { 0 };

static int md_write(void)
{
    return hearth_metadata_write("here", NULL, &writer, &calls_err);
}

static int md_add_piece(void)
{
    struct hearth_piece p = rank_piece("w", NULL, 1, two);

    return hearth_metadata_add_piece(writer, &p, "file", 0, 100, &calls_err);
}

static int md_add_bytes(void)
{
    return hearth_metadata_add_bytes(writer, "b", 1, "file", 100, 10, &calls_err);
}

static int md_add_path(void)
{
    struct hearth_metadata_step step = { .key = { "w", 1 } };

    return hearth_metadata_add_path(writer, "w", 1, &step, 1, &calls_err);
}

static int md_finish(void)
{
    return hearth_metadata_finish(writer, &pickle, &pickle_len, &calls_err);
}

static int md_abandon(void)
{
    int rc = md_write();

    hearth_metadata_abandon(writer);
    return rc;
}

static int md_open(void)
{
    return hearth_metadata_open(pickle, pickle_len, &md, &calls_err);
}

static int md_info(void)
{
    struct hearth_metadata_head head = HEARTH_METADATA_HEAD_INIT;

    return hearth_metadata_info(md, &head, &calls_err);
}

static int md_entry_at(void)
{
    struct hearth_metadata_entry e = HEARTH_METADATA_ENTRY_INIT;

    return hearth_metadata_entry_at(md, 0, &e, &calls_err);
}

static int md_entry_find(void)
{
    struct hearth_metadata_entry e = HEARTH_METADATA_ENTRY_INIT;

    return hearth_metadata_entry_find(md, "w", 1, &e, &calls_err);
}

static int md_chunk_at(void)
{
    struct hearth_metadata_chunk c = HEARTH_METADATA_CHUNK_INIT;

    return hearth_metadata_chunk_at(md, 0, 0, &c, &calls_err);
}

static int md_path_at(void)
{
    struct hearth_metadata_step step;

    return hearth_metadata_path_at(md, 0, 0, &step, &calls_err);
}

static int md_stored_at(void)
{
    struct hearth_metadata_stored st = HEARTH_METADATA_STORED_INIT;

    return hearth_metadata_stored_at(md, 0, &st, &calls_err);
}

static int md_stored_find(void)
{
    struct hearth_metadata_stored st = HEARTH_METADATA_STORED_INIT;

    return hearth_metadata_stored_find(md, "w", 1, zero, 1, &st, &calls_err);
}

static int md_close(void)
{
    hearth_metadata_close(md);
    return 0;
}

/* ---- values of torch
 * ------------------------------------------------------------------------------ */

static const unsigned char one_in_a_list[] = { 0x80, 2, ']', 'K', 1, 'a', '.' };

static int values_open(void)
{
    return hearth_values_open(one_in_a_list, sizeof(one_in_a_list), &values, &calls_err);
}

static int value_root(void)
{
    value = (struct hearth_value)HEARTH_VALUE_INIT;
    return hearth_value_root(values, &value, &calls_err);
}

static int value_child(void)
{
    struct hearth_value child = HEARTH_VALUE_INIT;

    return hearth_value_child(values, &value, 0, &child, &calls_err);
}

static int values_close(void)
{
    hearth_values_close(values);
    return 0;
}

static int free_pickle(void)
{
    hearth_free(pickle);
    return 0;
}

static int save_bytes(void)
{
    struct hearth_piece p = rank_piece("w", NULL, 1, two);

    return hearth_save_bytes(&p, 1, NULL, 0) == 0;
}

const struct call calls_plain[] = { { .name = "hearth_version", .make = version },
    { .name = "hearth_version_number", .make = version_number },
    { .name = "hearth_strerror", .make = code_text },

    { .name = "hearth_dtype_name", .make = dtype_name },
    { .name = "hearth_dtype_parse", .make = dtype_parse },
    { .name = "hearth_dtype_bytes", .make = dtype_bytes },
    { .name = "hearth_opts_from_env", .make = opts_from_env },
    { .name = "hearth_save_bytes", .make = save_bytes },
    { .name = "hearth_bootstrap_tcp", .make = tcp },
    { .name = "hearth_bootstrap_tcp_from_env", .make = tcp_from_env },
    { .name = "hearth_bootstrap_hostfile", .make = hostfile },
    { .name = "hearth_bootstrap_close", .make = meeting_close },
    { .name = "hearth_metadata_write", .make = md_write },
    { .name = "hearth_metadata_add_piece", .make = md_add_piece },
    { .name = "hearth_metadata_add_bytes", .make = md_add_bytes },
    { .name = "hearth_metadata_add_path", .make = md_add_path },
    { .name = "hearth_metadata_finish", .make = md_finish },
    { .name = "hearth_metadata_abandon", .make = md_abandon },
    { .name = "hearth_metadata_open", .make = md_open },
    { .name = "hearth_metadata_info", .make = md_info },
    { .name = "hearth_metadata_entry_at", .make = md_entry_at },
    { .name = "hearth_metadata_entry_find", .make = md_entry_find },
    { .name = "hearth_metadata_chunk_at", .make = md_chunk_at },
    { .name = "hearth_metadata_path_at", .make = md_path_at },
    { .name = "hearth_metadata_stored_at", .make = md_stored_at },
    { .name = "hearth_metadata_stored_find", .make = md_stored_find },
    { .name = "hearth_metadata_close", .make = md_close },
    { .name = "hearth_free", .make = free_pickle },
    { .name = "hearth_values_open", .make = values_open },
    { .name = "hearth_value_root", .make = value_root },
    { .name = "hearth_value_child", .make = value_child },
    { .name = "hearth_values_close", .make = values_close }, { 0 } };

const struct call calls_others[] = {
    { .name = "hearth_bootstrap_pmix", .make = pmix, .until = "`deadline_ms`" }, { 0 }
};
