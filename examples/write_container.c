/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint that PyTorch's readers understand, written by C alone: two tensors, a number, and
 * the `.metadata` that says where they lie. It stays in ROOT/JOB/step-1_ckpt/.
 *
 *     write_container ROOT JOB       ROOT: a tmpfs (mkdir it first); HEARTH_* as `hearth ls --env`
 */
#include <hearth/hearth.h>
#include <stdio.h>
#include <string.h>

#define STEP   1
#define OBJECT "__0__0_src0.distcp" /* the first object of rank 0 */
#define ROWS   4
#define COLS   3

static float weight[ROWS][COLS];
static const int64_t step = STEP;
static const int64_t shape[] = { ROWS, COLS };

/* torch.save(0.25), in the older form: magic number, version, sys_info; the number; no storages. */
static const char lr[] =
        "\x80\2\x8a\n\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\2M\xe9\3."
        "\x80\2}q\0(X\x10\0\0\0protocol_versionq\1M\xe9\3X\r\0\0\0little_endianq\2\x88"
        "X\n\0\0\0type_sizesq\3}q\4(X\5\0\0\0shortq\5K\2X\3\0\0\0intq\6K\4X\4\0\0\0"
        "longq\7K\4uu."
        "\x80\2G\x3f\xd0\0\0\0\0\0\0."
        "\x80\2]q\0.";

static struct hearth_piece pieces[] = {
    { .struct_size = sizeof(pieces[0]),
            .key = "model.weight",
            .key_len = 12,
            .from = weight,
            .dtype = HEARTH_FLOAT32,
            .ndim = 2,
            .shape = shape },
    { .struct_size = sizeof(pieces[0]),
            .key = "step",
            .key_len = 4,
            .from = &step,
            .dtype = HEARTH_INT64 },
};
static struct hearth_bytes items[] = { { .struct_size = sizeof(items[0]),
        .key = "optimizer.lr",
        .key_len = 12,
        .data = lr,
        .len = sizeof(lr) - 1 } };

/* Names with dots were nested in the state: ("model", "weight"). */
static int path(struct hearth_metadata_writer *w, const char *name, struct hearth_error *err)
{
    const char *dot = strchr(name, '.');
    const struct hearth_metadata_step steps[] = { { .key = { name, (size_t)(dot - name) } },
        { .key = { dot + 1, strlen(dot + 1) } } };

    return hearth_metadata_add_path(w, name, strlen(name), steps, 2, err);
}

/* What lies where, as a .metadata. Of a job with many ranks one rank gathers everybody's places. */
static int describe(struct hearth_metadata_writer *w, const struct hearth_place *place,
        struct hearth_error *err)
{
    int rc = 0;

    for (int i = 0; i < 2 && !rc; i++)
        rc = hearth_metadata_add_piece(
                w, &pieces[i], OBJECT, place[i].offset, place[i].length, err);
    if (!rc)
        rc = hearth_metadata_add_bytes(
                w, items[0].key, items[0].key_len, OBJECT, place[2].offset, place[2].length, err);
    if (!rc && !(rc = path(w, "model.weight", err)))
        rc = path(w, "optimizer.lr", err);
    return rc;
}

static int put_metadata(struct hearth_save *save, const char *id, struct hearth_error *err)
{
    struct hearth_metadata_writer *w = NULL;
    struct hearth_place place[3];
    void *bytes = NULL;
    size_t len, count;
    int rc = hearth_save_places(save, place, 3, &count, err);

    if (rc || (rc = hearth_metadata_write(id, "write_container", &w, err)))
        return rc;
    if ((rc = describe(w, place, err))) {
        hearth_metadata_abandon(w);
        return rc;
    }
    if (!(rc = hearth_metadata_finish(w, &bytes, &len, err)))
        rc = hearth_save_put_common(save, ".metadata", bytes, len, err);
    hearth_free(bytes);
    return rc;
}

static int write_step(struct hearth *h, const char *id, struct hearth_error *err)
{
    struct hearth_begin_opts opts = { .struct_size = sizeof(opts), .name = OBJECT };
    struct hearth_handle *handle = NULL;
    struct hearth_save *save;
    int rc = hearth_save_begin(h, STEP, hearth_save_bytes(pieces, 2, items, 1), &opts, &save, err);

    if (rc)
        return rc;
    if ((rc = hearth_save_add(save, pieces, 2, err)) ||
            (rc = hearth_save_add_bytes(save, items, 1, err)) ||
            (rc = put_metadata(save, id, err))) {
        hearth_save_abort(save);
        return rc;
    }
    if (!(rc = hearth_save_commit(save, &handle, err)))
        rc = hearth_wait(handle, HEARTH_PROTECTED, 60000, err);
    hearth_handle_close(handle);
    return rc;
}

int main(int argc, char **argv)
{
    struct hearth_opts opts = HEARTH_OPTS_INIT;
    struct hearth_checkpoint *ckpt = NULL;
    struct hearth_error err = { 0 };
    struct hearth *h = NULL;
    char id[4096];
    int rc;

    if (argc != 3) {
        fprintf(stderr, "usage: write_container ROOT JOB\n");
        return 2;
    }
    for (int i = 0; i < ROWS * COLS; i++)
        weight[i / COLS][i % COLS] = (float)i / 2;
    snprintf(id, sizeof(id), "%s/%s/step-%d_ckpt", argv[1], argv[2], STEP);
    opts.root = argv[1];
    opts.job = argv[2];
    opts.world = 1;
    opts.allow_degraded = 1; /* one node: there is nobody to copy to */
    if (!(rc = hearth_opts_from_env(&opts, &err)) && !(rc = hearth_open(&opts, &h, &err)) &&
            !(rc = hearth_recover(h, NULL, &ckpt, &err)) && !ckpt)
        rc = write_step(h, id, &err);
    hearth_checkpoint_close(ckpt);
    hearth_close(h, HEARTH_KEEP);
    if (rc)
        fprintf(stderr, "write_container: %s\n", err.text);
    else
        printf("%s\n", id);
    return rc ? 1 : 0;
}
