/* SPDX-License-Identifier: Apache-2.0 */
/* The program `hearth`, run as a user runs it: on vectors, on a store's files, on bad input. */
#include "command.h"
#include "forge.h"
#include "saved.h"

#include "core/foreign/items.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

static const char *data_file(const char *name)
{
    static char path[1024];

    snprintf(path, sizeof(path), "%s/%s", getenv("HEARTH_TEST_DATA"), name);
    return path;
}

static long long number(const json_t *j, const char *name)
{
    return json_integer_value(json_object_get(j, name));
}

static const char *text_of(const json_t *j, const char *name)
{
    const char *text = json_string_value(json_object_get(j, name));

    return text ? text : "";
}

TestSuite(cli, .init = make_root, .fini = remove_root);

/* ---- vectors --------------------------------------------------------------------------------- */

Test(cli, headers_of_the_vectors_there_and_back)
{
    FILE *f = fopen(data_file("tensor_headers.tsv"), "r");
    char line[8192], want[2048];
    size_t row = 0, tried = 0;

    cr_assert(ne(ptr, f, NULL));
    while (fgets(line, sizeof(line), f)) {
        char *dtype = strtok(line, "\t"), *shape = strtok(NULL, "\t"), *hex = strtok(NULL, "\t\n");

        if (row++ == 0 || row % 19 != 0)
            continue;
        if (!strcmp(shape, "-"))
            shape = strcpy(want, "()");
        cr_assert(zero(int, hearth("header", "encode", dtype, shape)), "%s", err_text);
        out[strcspn(out, "\n")] = '\0';
        must_say(out, hex);
        snprintf(want, sizeof(want), "%s %s\n", dtype, strcmp(shape, "()") ? shape : "()");
        cr_assert(zero(int, hearth("header", "decode", hex)), "%s", err_text);
        must_say(out, want);
        tried++;
    }
    fclose(f);
    cr_assert(ge(sz, tried, 100));
}

static void check_item(const json_t *got, const json_t *want, const char *object)
{
    static char payload[1 << 20], file[1 << 20];
    char offset[32];
    size_t n;

    cr_assert(eq(long, (long)number(got, "offset"), (long)number(want, "offset")));
    cr_assert(eq(long, (long)number(got, "length"), (long)number(want, "length")));
    must_say(text_of(got, "kind"), "tensor");
    must_say(text_of(got, "dtype"), text_of(want, "dtype"));
    cr_assert(
            eq(int, json_equal(json_object_get(got, "shape"), json_object_get(want, "shape")), 1));
    cr_assert(eq(long, (long)number(got, "data_offset"), (long)number(want, "payload_offset")));
    cr_assert(eq(long, (long)number(got, "data_bytes"), (long)number(want, "payload_length")));
    snprintf(offset, sizeof(offset), "%lld", number(got, "offset"));
    cr_assert(zero(int, hearth("cat", object, "--offset", offset)), "%s", err_text);
    cr_assert(eq(sz, out_len, (size_t)number(want, "payload_length")));
    memcpy(payload, out, out_len);
    n = slurp(object, file, sizeof(file));
    cr_assert(le(sz, 4096 + (size_t)number(want, "payload_offset") + out_len, n));
    cr_assert(zero(int, memcmp(payload, file + 4096 + number(want, "payload_offset"), out_len)));
}

static void copy(const char *from, const char *to)
{
    static char bytes[1 << 20];
    size_t n = slurp(from, bytes, sizeof(bytes));
    int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    cr_assert(ge(int, fd, 0), "%s", to);
    cr_assert(eq(long, write(fd, bytes, n), (long)n));
    close(fd);
}

static size_t check_object(const json_t *want, const char *container)
{
    size_t tensors = 0, count;
    char object[1200];
    char named[1200];
    json_t *got, *items, *item;

    snprintf(named, sizeof(named), "%s/%s", data_file(container), text_of(want, "name"));
    snprintf(object, sizeof(object), "%s/%s", root,
            text_of(want, "name")); /* no .metadata beside it */
    copy(named, object);
    cr_assert(zero(int, hearth("inspect", object, "--json")), "%s", err_text);
    got = json_loads(out, 0, NULL);
    cr_assert(ne(ptr, got, NULL));
    must_say(text_of(got, "format"), text_of(want, "format_signature"));
    cr_assert(eq(long, (long)number(got, "bytes_written"), (long)number(want, "len_written_data")));
    cr_assert(eq(int, json_is_false(json_object_get(got, "verified")), 1));
    items = json_object_get(want, "items");
    count = json_array_size(items);
    if (strcmp(text_of(want, "format_signature"), "MLF_TENS") != 0) /* zips: one piece of bytes */
        json_array_clear(items);
    for (size_t i = 0; i < count; i++) {
        item = json_array_get(items, i);
        if (strcmp(text_of(item, "kind"), "tensor") != 0)
            continue;
        check_item(json_array_get(json_object_get(got, "items"), tensors), item, object);
        tensors++;
    }
    cr_assert(eq(sz, json_array_size(json_object_get(got, "items")), tensors + (tensors < count)),
            "what follows the tensors is one piece");
    json_decref(got);
    return tensors;
}

Test(cli, foreign_containers_read_as_the_vectors_say)
{
    static const char *const containers[] = { "container/step-7_ckpt", "container/step-12_ckpt" };
    size_t tensors = 0;

    for (size_t c = 0; c < 2; c++) {
        char expected[256];
        json_t *want, *objects;

        snprintf(expected, sizeof(expected), "%s.expected.json", containers[c]);
        want = json_load_file(data_file(expected), 0, NULL);
        cr_assert(ne(ptr, want, NULL));
        objects = json_object_get(want, "objects");
        for (size_t i = 0; i < json_array_size(objects); i++)
            tensors += check_object(json_array_get(objects, i), containers[c]);
        json_decref(want);
        cr_assert(zero(int, hearth("verify", data_file(containers[c]))), "%s", err_text);
    }
    cr_assert(ge(sz, tensors, 10));
}

/* hex of a length and the file's bytes */
static char *framed_hex(const char *path)
{
    static char bytes[1 << 20];
    size_t n = slurp(path, bytes, sizeof(bytes));
    char *hex = malloc(2 * n + 9);

    snprintf(hex, 9, "%02x%02x%02x%02x", (unsigned)n & 255, (unsigned)n >> 8 & 255,
            (unsigned)n >> 16 & 255, (unsigned)n >> 24);
    for (size_t i = 0; i < n; i++)
        snprintf(hex + 8 + 2 * i, 3, "%02x", (unsigned char)bytes[i]);
    return hex;
}

Test(cli, hostile_files_get_their_verdict)
{
    FILE *f = fopen(data_file("hostile/index.tsv"), "r");
    char line[4096], name[256];
    size_t tried = 0;

    cr_assert(ne(ptr, f, NULL));
    while (fgets(line, sizeof(line), f)) {
        const char *file = strtok(line, "\t"), *reader = strtok(NULL, "\t");
        const char *verdict = (strtok(NULL, "\t"), strtok(NULL, "\t"));
        int object = !strcmp(reader, "object file"), status;
        char *hex = NULL;

        snprintf(name, sizeof(name), "hostile/%s", file);
        if (!object && strcmp(reader, "header") != 0 && strcmp(reader, "both") != 0)
            continue;
        hex = object ? NULL : framed_hex(data_file(name));
        if (hex && strlen(hex) > 100000) { /* longer than an argument may be */
            free(hex);
            continue;
        }
        status = object ? hearth("inspect", data_file(name)) : hearth("header", "decode", hex);
        free(hex);
        tried++;
        if (!strncmp(verdict, "refuse", 6))
            cr_assert(eq(int, status, 1), "%s was not refused", name);
        else if (!strncmp(verdict, "ok", 2))
            cr_assert(eq(int, status, 0), "%s: %s", name, err_text);
        else
            cr_assert(le(int, status, 1), "%s: %s", name, err_text);
    }
    fclose(f);
    cr_assert(ge(sz, tried, 140));
}

/* ---- own objects ----------------------------------------------------------------------------- */

static void flip(const char *path, off_t at)
{
    int fd = open(path, O_RDWR);
    unsigned char c;

    cr_assert(eq(long, (long)pread(fd, &c, 1, at), 1));
    c ^= 4;
    cr_assert(eq(long, (long)pwrite(fd, &c, 1, at), 1));
    close(fd);
}

static void forge_file(const char *path, off_t at)
{
    int fd = open(path, O_RDWR);
    unsigned char bytes[5];

    cr_assert(eq(long, (long)pread(fd, bytes, 5, at), 5));
    forge(bytes);
    cr_assert(eq(long, (long)pwrite(fd, bytes, 5, at), 5));
    close(fd);
}

/* 1: what was forged is found. */
static int forged_is_found(const char *integrity)
{
    struct hth_store *s = make_store();
    char *object = strdup(in_job("step-40_ckpt/shard"));
    int inspected, verified;

    s->ops->close(s);
    cr_assert(zero(int, hearth("inspect", object)), "%s", err_text);
    cr_assert(eq(int, has(out, integrity), 1), "%s", out);
    forge_file(object, 4096 + 1000);
    inspected = hearth("inspect", object, "--json");
    cr_assert(eq(int, has(err_text, "chunk 0"), inspected), "%s", err_text);
    verified = hearth("verify", object);
    forge_file(object, 4096 + 1000);
    cr_assert(zero(int, hearth("verify", object)), "%s", err_text);
    cr_assert(eq(int, inspected, verified));
    free(object);
    return verified;
}

Test(cli, bytes_forged_under_their_crc_get_through)
{
    cr_assert(zero(int, forged_is_found("integrity crc32c")));
}

Test(cli, bytes_forged_under_their_crc_are_found_in_a_strong_object)
{
    strong = 1;
    cr_assert(eq(int, forged_is_found("integrity strong"), 1));
}

/* A container's file is a link now, to this. */
static void link_to(const char *to)
{
    unlink(in_job("step-40_ckpt/shard"));
    cr_assert(zero(int, symlink(to, in_job("step-40_ckpt/shard"))));
}

Test(cli, what_a_link_leads_to_is_not_read_but_in_the_buffers)
{
    struct hth_store *s = make_store();
    char *object = strdup(in_job("step-40_ckpt/shard")), *buffers = strdup(in_job("buffer_pool"));
    char outside[128], buffer[160];

    s->ops->close(s);
    snprintf(outside, sizeof(outside), "%s/outside", root);
    snprintf(buffer, sizeof(buffer), "%s/one", buffers);
    cr_assert(zero(int, rename(object, outside)));
    cr_assert(zero(int, hearth("inspect", outside)), "it is an object: %s", err_text);
    link_to(outside);
    cr_assert(ne(int, hearth("inspect", object), 0), "%s", out);
    cr_assert(eq(int, has(err_text, "a link"), 1), "%s", err_text);
    cr_assert(ne(int, hearth("cat", object, "--offset", "0"), 0));
    cr_assert(zero(sz, out_len));
    cr_assert(ne(int, hearth("verify", object), 0));
    cr_assert(eq(int, hearth("verify", in_job("step-40_ckpt")), 1), "%s", out);
    cr_assert(eq(int, has(out, "a link, which is not followed") && has(out, "1 unread"), 1), "%s",
            out);
    cr_assert(eq(int, hearth("ls", "--root", root, JOB), 1), "%s", out);
    cr_assert(eq(int, has(err_text, "a link, which is not followed"), 1), "%s", err_text);

    cr_assert(zero(int, mkdir(buffers, 0700)));
    cr_assert(zero(int, rename(outside, buffer)));
    link_to("../buffer_pool/one");
    cr_assert(zero(int, hearth("inspect", object)), "%s", err_text);
    cr_assert(zero(int, hearth("verify", object)), "%s", err_text);
    cr_assert(zero(int, hearth("verify", in_job("step-40_ckpt"))), "%s", out);
    link_to(buffer);
    cr_assert(zero(int, hearth("inspect", object)), "%s", err_text);
    cr_assert(zero(int, rename(buffer, outside)));
    cr_assert(zero(int, symlink(outside, buffer)), "and from there another one");
    cr_assert(ne(int, hearth("inspect", object), 0), "%s", out);
    free(object);
    free(buffers);
}

Test(cli, a_link_is_no_job_and_has_no_records)
{
    struct hth_store *s = make_store();
    char other[128], *records = strdup(in_job(".hearth"));

    s->ops->close(s);
    snprintf(other, sizeof(other), "%s/other", root);
    cr_assert(zero(int, symlink(JOB, other)));
    cr_assert(zero(int, hearth("ls", "--root", root)));
    cr_assert(eq(int, has(out, JOB) && !has(out, "other"), 1), "%s", out);
    cr_assert(eq(int, hearth("ls", "--root", root, "other"), 3), "%s", out);
    cr_assert(eq(int, hearth("keep", "--root", root, "other"), 3), "%s", out);
    cr_assert(ne(int, hearth("verify", "--root", root, "other"), 0), "%s", out);
    cr_assert(zero(int, hearth("verify", "--root", root, JOB)), "%s", err_text);
    cr_assert(zero(int, hearth("verify", "--root", root, JOB "/step-40_ckpt")), "%s", err_text);
    cr_assert(zero(int, hearth("verify", other)), "a path of the user's own: %s", err_text);
    cr_assert(zero(int, unlink(other)));
    cr_assert(zero(int, rename(records, other)));
    cr_assert(zero(int, symlink(other, records)));
    cr_assert(ne(int, hearth("ls", "--root", root, JOB), 0), "%s", out);
    cr_assert(eq(int, has(err_text, ".hearth: a link"), 1), "%s", err_text);
    cr_assert(ne(int, hearth("verify", "--root", root, JOB), 0), "%s", out);
    free(records);
}

Test(cli, own_object_is_verified_and_a_flipped_bit_is_named)
{
    struct hth_store *s = make_store();
    const char *object = strdup(in_job("step-40_ckpt/shard"));
    json_t *got, *item;
    char offset[32];

    s->ops->close(s);
    cr_assert(zero(int, hearth("inspect", object, "--json")), "%s", err_text);
    got = json_loads(out, 0, NULL);
    cr_assert(eq(int, json_is_true(json_object_get(got, "verified")), 1), "%s", out);
    item = json_array_get(json_object_get(got, "items"), 1);
    must_say(text_of(item, "key"), "b");
    snprintf(offset, sizeof(offset), "%lld", number(item, "offset"));
    flip(object, 4096 + 1000); /* payload of the first tensor, in the first chunk */
    cr_assert(eq(int, hearth("inspect", object, "--json"), 1));
    cr_assert(eq(int, has(out, "\"verified\": false"), 1));
    cr_assert(eq(int, has(err_text, "chunk 0"), 1), "%s", err_text);
    cr_assert(eq(int, hearth("cat", object, "--offset", "0"), 1));
    cr_assert(zero(sz, out_len), "wrong bytes were handed out");
    cr_assert(eq(int, hearth("cat", object, "--offset", offset), 0), "another chunk is good");
    cr_assert(eq(sz, out_len, SECOND_BYTES));
    cr_assert(eq(int, (unsigned char)out[1], (unsigned char)(31 + SECOND_BYTES)));
    flip(object, 4096 + 1000);
    for (off_t at = 0; at < 4096; at += 13) { /* every byte of the block counts */
        flip(object, at);
        if (at < 16 || at > 23) /* without our magic it is foreign, and has no checksums */
            cr_assert(eq(int, hearth("inspect", object), 1), "byte %ld", (long)at);
        flip(object, at);
    }
    cr_assert(zero(int, hearth("verify", object)), "%s", err_text);
    json_decref(got);
    free((void *)(uintptr_t)object);
}

Test(cli, container_is_held_against_its_manifest)
{
    struct hth_store *s = make_store();
    char job_dir[128];

    s->ops->close(s);
    snprintf(job_dir, sizeof(job_dir), "%s/" JOB, root);
    cr_assert(zero(int, hearth("verify", job_dir)), "%s%s", out, err_text);
    cr_assert(eq(int, has(out, "2 of its 2 objects are here"), 1), "%s", out);
    cr_assert(eq(int, has(out, "3 verified, 0 without checksums, 0 wrong"), 1), "%s", out);
    cr_assert(zero(int, hearth("verify", in_job("step-40_ckpt"), "--json")));
    cr_assert(eq(int, has(out, "\"verified\": true"), 1), "%s", out);
    flip(in_job("step-40_ckpt/common"), 3);
    cr_assert(eq(int, hearth("verify", job_dir), 1));
    cr_assert(eq(int, has(out, "1 wrong"), 1), "%s", out);
    flip(in_job("step-40_ckpt/common"), 3);
    flip(in_job("step-40_ckpt/shard"), 4096 + (4 << 20) + 5);
    cr_assert(eq(int, hearth("verify", in_job("step-40_ckpt")), 1));
    cr_assert(eq(int, has(out, "chunk 1"), 1), "%s", out);
    cr_assert(zero(int, unlink(in_job("step-40_ckpt/shard"))));
    cr_assert(zero(int, hearth("verify", job_dir)), "other nodes may have what is not here");
    cr_assert(eq(int, has(out, "1 of its 2 objects are here"), 1), "%s", out);
}

Test(cli, ls_shows_saves_and_rm_and_clean_wait_for_the_engine)
{
    struct hth_store *s = make_store();
    char save[128], pid[32];
    struct stat st;
    json_t *got, *row;

    snprintf(save, sizeof(save), "%s/" JOB "/step-40_ckpt", root);
    snprintf(pid, sizeof(pid), "pid %ld", (long)getpid());
    cr_assert(zero(int, hearth("ls", "--root", root, JOB, "--json")), "%s", err_text);
    got = json_loads(out, 0, NULL);
    cr_assert(eq(long, (long)number(got, "engine_pid"), (long)getpid()));
    row = json_array_get(json_object_get(got, "saves"), 0);
    cr_assert(eq(long, (long)number(row, "step"), 40));
    cr_assert(eq(long, (long)number(row, "epoch"), 5));
    cr_assert(eq(long, (long)number(row, "objects"), 2));
    must_say(text_of(row, "state"), "complete");
    json_decref(got);
    cr_assert(eq(int, hearth("rm", save), 4), "the engine has the lock");
    cr_assert(eq(int, has(err_text, pid), 1), "%s", err_text);
    cr_assert(eq(int, hearth("clean", "--root", root, JOB), 4));
    cr_assert(zero(int, stat(save, &st)));
    s->ops->close(s);
    cr_assert(zero(int, hearth("ls", "--root", root)));
    cr_assert(eq(int, has(out, JOB), 1));
    cr_assert(zero(int, hearth("rm", "--root", root, JOB "/step-40_ckpt")), "%s", err_text);
    cr_assert(ne(int, stat(save, &st), 0));
    cr_assert(eq(int, hearth("verify", in_job("")), 3), "nothing is left: %s%s", out, err_text);
    cr_assert(zero(int, hearth("clean", "--root", root, JOB)), "%s", err_text);
    cr_assert(ne(int, stat(in_job(""), &st), 0), "all of the job goes");
    cr_assert(eq(int, hearth("clean", "--root", root, JOB), 3));
}

/* The step in JSON of a save and of its object. */
static void must_count(uint64_t step, const char *json)
{
    struct hth_store *s;
    char object[80], says[64];

    step_saved = step;
    s = make_store();
    s->ops->close(s);
    snprintf(object, sizeof(object), "step-%llu_ckpt/shard", (unsigned long long)step);
    snprintf(says, sizeof(says), "\"step\": %s,", json);
    cr_assert(zero(int, hearth("ls", "--root", root, JOB, "--json")), "%s", err_text);
    cr_assert(eq(int, has(out, says), 1), "%s", out);
    cr_assert(zero(int, hearth("inspect", in_job(object), "--json")), "%s", err_text);
    cr_assert(eq(int, has(out, says), 1), "%s", out);
    cr_assert(zero(int, hearth("clean", "--root", root, JOB)), "%s", err_text);
}

Test(cli, a_step_that_is_no_integer_of_json_is_its_digits)
{
    must_count(INT64_MAX, "9223372036854775807");
    must_count(UINT64_C(1) << 63, "\"9223372036854775808\"");
    must_count(UINT64_MAX - 1, "\"18446744073709551614\"");
}

/* `hearth cat` waits for its reader with the item half written; then a program writes over the
 * file in place. */
Test(cli, cat_hands_out_no_byte_that_was_not_checked)
{
    struct hth_store *s = make_store();
    char object[200], command[600], *got = malloc(FIRST_BYTES + 1), *zeros = calloc(1, FIRST_BYTES);
    size_t n, more;
    FILE *pipe;
    int fd;

    s->ops->close(s);
    snprintf(object, sizeof(object), "%s", in_job("step-40_ckpt/shard"));
    snprintf(command, sizeof(command), "%s/hearth cat --offset 0 %s 2>%s",
            getenv("HEARTH_TEST_BIN"), object, err_path);
    pipe = popen(command, "r");
    cr_assert(ne(ptr, pipe, NULL));
    cr_assert(eq(sz, fread(got, 1, 1, pipe), 1)); /* it writes, and its pipe is full */
    fd = open(object, O_WRONLY);
    cr_assert(eq(i64, pwrite(fd, zeros, FIRST_BYTES, HTH_BLOCK), FIRST_BYTES));
    close(fd);
    for (n = 1; (more = fread(got + n, 1, FIRST_BYTES - n, pipe)) > 0;)
        n += more;
    for (size_t i = 0; i < n; i++)
        cr_assert(eq(u32, (unsigned char)got[i], (unsigned char)(i * 31 + FIRST_BYTES)),
                "byte %zu of %zu was written after the check", i, n);
    cr_assert(ne(int, pclose(pipe), 0), "the second chunk does not match its checksum");
    free(got);
    free(zeros);
}

static void damage(const char *path, off_t at)
{
    int fd = open(path, O_WRONLY);

    cr_assert(eq(i64, pwrite(fd, "XXXXXXXX", 8, at), 8), "%s", path);
    close(fd);
}

Test(cli, an_object_that_is_called_as_a_lock_is_verified)
{
    struct hth_store *s;

    object_saved = "weights.lock";
    s = make_store();
    s->ops->close(s);
    cr_assert(zero(int, hearth("verify", in_job("step-40_ckpt"))), "%s%s", out, err_text);
    damage(in_job("step-40_ckpt/weights.lock"), 9000);
    cr_assert(eq(int, hearth("verify", in_job("step-40_ckpt")), 1), "%s%s", out, err_text);
}

/* A copy of a container, without its manifest. */
Test(cli, an_object_with_a_damaged_signature_is_wrong_and_not_foreign)
{
    struct hth_store *s = make_store();
    char command[800], copy[160], object[200];

    s->ops->close(s);
    snprintf(copy, sizeof(copy), "%s/mysave", root);
    snprintf(object, sizeof(object), "%s/x.distcp", copy);
    snprintf(command, sizeof(command), "mkdir %s && cp %s %s", copy, in_job("step-40_ckpt/shard"),
            object);
    cr_assert(zero(int, system(command)));
    damage(object, 8);
    cr_assert(eq(int, hearth("verify", copy), 1), "%s%s", out, err_text);
}

Test(cli, rm_takes_nothing_but_saves_and_follows_no_link)
{
    char other[128], link[256], inside[160];
    struct stat st;

    must(hth_auth_init(NULL));
    snprintf(other, sizeof(other), "%s/other", root);
    snprintf(inside, sizeof(inside), "%s/precious", other);
    cr_assert(zero(int, mkdir(other, 0700)));
    close(open(inside, O_CREAT | O_WRONLY, 0600));
    cr_assert(eq(int, hearth("rm", other), 2), "a directory that is no save");
    cr_assert(eq(int, hearth("rm", inside), 2));
    cr_assert(zero(int, mkdir(in_job(""), 0700)));
    cr_assert(zero(int, mkdir(in_job("step-3_ckpt"), 0700))); /* of another program */
    snprintf(link, sizeof(link), "%s", in_job("step-3_ckpt/link"));
    cr_assert(zero(int, symlink(other, link)));
    cr_assert(eq(int, hearth("rm", in_job("step-3_ckpt")), 3), "no job of Hearth's: %s", err_text);
    cr_assert(zero(int, stat(in_job("step-3_ckpt"), &st)));
    cr_assert(zero(int, stat(inside, &st)), "the link was followed");
}

Test(cli, what_cannot_be_read_is_named_and_is_no_success)
{
    struct hth_store *s = make_store();
    char job_dir[128], command[300];

    s->ops->close(s);
    snprintf(job_dir, sizeof(job_dir), "%s/" JOB, root);
    if (geteuid() == 0) {
        snprintf(command, sizeof(command), "chown -R 65534:65534 %s", root);
        cr_assert(zero(int, system(command)));
    }
    cr_assert(zero(int, hearth_user("verify", job_dir)), "%s%s", out, err_text);
    cr_assert(zero(int, hearth_user("ls", "--root", root)), "%s%s", out, err_text);
    cr_assert(zero(int, symlink("/nonexistent/odd", in_job("step-40_ckpt/odd"))));
    cr_assert(eq(int, hearth_user("verify", in_job("step-40_ckpt")), 1), "%s", out);
    cr_assert(eq(int, has(out, "step-40_ckpt/odd") && has(out, "1 unread"), 1), "%s", out);
    cr_assert(zero(int, unlink(in_job("step-40_ckpt/odd"))));
    cr_assert(zero(int, chmod(in_job("step-40_ckpt/shard"), 0)));
    cr_assert(eq(int, hearth_user("verify", job_dir), 1), "%s", out);
    cr_assert(eq(int, has(out, "1 unread") && has(out, "Permission denied"), 1), "%s", out);
    cr_assert(eq(int, has(out, "as in the manifest"), 1), "the others are looked at: %s", out);
    cr_assert(eq(int, hearth_user("inspect", in_job("step-40_ckpt/shard")), 5));
    cr_assert(eq(int, hearth_user("ls", "--root", root, JOB), 1), "%s", out);
    cr_assert(eq(int, has(err_text, "step-40_ckpt/shard cannot be read"), 1), "%s", err_text);
    cr_assert(zero(int, chmod(in_job("step-40_ckpt"), 0)));
    cr_assert(eq(int, hearth_user("verify", job_dir), 1), "%s", out);
    cr_assert(eq(int, has(out, "unread"), 1), "%s", out);
    cr_assert(eq(int, hearth_user("ls", "--root", root, "--json"), 1), "%s", out);
    cr_assert(zero(int, chmod(in_job("step-40_ckpt"), 0700)));
    cr_assert(zero(int, chmod(in_job(".hearth"), 0)));
    cr_assert(ne(int, hearth_user("verify", job_dir), 0), "%s", out);
    cr_assert(ne(int, hearth_user("ls", "--root", root, JOB), 0), "%s", out);
    cr_assert(zero(int, chmod(in_job(".hearth"), 0700)));
    cr_assert(zero(int, chmod(job_dir, 0)));
    cr_assert(ne(int, hearth_user("verify", job_dir), 0), "%s", out);
    cr_assert(eq(int, hearth_user("ls", "--root", root), 1), "%s", out);
    cr_assert(eq(int, has(err_text, JOB), 1), "%s", err_text);
    cr_assert(zero(int, chmod(job_dir, 0700)));
}

/* The engine of a job in `at` says this of its log. */
static void must_answer(const char *at, const char *log)
{
    static const struct timespec nap = { .tv_nsec = 50000000 };
    const char *args[] = { "--root", at, "--job", JOB, "--transport", "tcp", NULL };
    json_t *got = NULL;
    int status;
    pid_t pid = start("hearthd", args);

    for (int i = 0; i < 100 && json_is_null(json_object_get(got, "status")) + !got; i++) {
        json_decref(got);
        got = hearth("ls", "--root", at, JOB, "--json") ? NULL : json_loads(out, 0, NULL);
        nanosleep(&nap, NULL);
    }
    cr_assert(eq(long, (long)number(got, "engine_pid"), (long)pid), "%s", out);
    must_say(text_of(json_object_get(got, "status"), "job"), JOB);
    must_say(text_of(got, "log"), log);
    must_say(text_of(json_object_get(got, "status"), "log"), log);
    json_decref(got);
    cr_assert(zero(int, hearth("keep", "--root", at, JOB)), "%s", err_text);
    cr_assert(eq(int, hearth("why", "--root", at, JOB), 3), "%s", err_text);
    cr_assert(eq(int, has(err_text, "remembers no such save"), 1), "%s", err_text);
    cr_assert(eq(int, hearth("why", "--root", at, "--recovery", JOB), 3), "%s", err_text);
    cr_assert(eq(int, has(err_text, "remembers no such recovery"), 1), "%s", err_text);
    cr_assert(zero(int, hearth("ls", "--root", at, JOB)));
    cr_assert(eq(int, has(out, ".hearth/log"), 1), "%s", out);
    kill(pid, SIGTERM);
    waitpid(pid, &status, 0);
    cr_assert(zero(int, status));
}

Test(cli, ls_asks_the_engine_and_says_where_its_log_is)
{
    must_answer(root, in_job(".hearth/log"));
}

/* The engine says it in JSON. */
Test(cli, a_root_may_have_any_name)
{
    static const struct {
        const char *name, *shown;
    } rows[] = { { "\"quoted\"", "\"quoted\"" }, { "back\\slash", "back\\slash" },
        { "gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f" }, { "latin-\xfc", "latin-?" },
        { "new\nline", "new\nline" } };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char at[128], log[160];

        snprintf(at, sizeof(at), "%s/%s", root, rows[i].name);
        snprintf(log, sizeof(log), "%s/%s/" JOB "/.hearth/log", root, rows[i].shown);
        cr_assert(zero(int, mkdir(at, 0700)));
        must_answer(at, log);
    }
}

/* ---- bad input ------------------------------------------------------------------------------- */

Test(cli, a_root_that_another_user_may_exchange_is_not_looked_at)
{
    static const char *const commands[][2] = { { "ls", NULL }, { "ls", JOB }, { "keep", JOB },
        { "verify", JOB } };

    cr_assert(zero(int, chmod(root, 0777)));
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        cr_assert(eq(int, hearth(commands[i][0], "--root", root, commands[i][1]), 2), "row %zu: %s",
                i, err_text);
        cr_assert(eq(int, has(err_text, "has mode 0777: every user may exchange the jobs"), 1),
                "row %zu: %s", i, err_text);
    }
    cr_assert(zero(int, chmod(root, 0700)));
}

Test(cli, bad_input_is_one_sentence_and_the_documented_status)
{
    static const struct {
        const char *args[6];
        int status;
        const char *says;
    } rows[] = {
        { { "frobnicate" }, 2, "frobnicate" },
        { { "help", "frobnicate" }, 2, "frobnicate" },
        { { "verif" }, 2, "there is no command 'verif'; did you mean 'verify'?" },
        { { "help", "inpsect" }, 2, "did you mean 'inspect'?" },
        { { "ls", "--jsn" }, 2, "there is no option --jsn; did you mean --json?" },
        { { "ls", "--root=/", "-json" }, 2, "there is no option -json; did you mean --json?" },
        { { "ls", "--json=1" }, 2, "takes no value" },
        { { "inspect" }, 2, "argument is missing" },
        { { "inspect", "/nonexistent" }, 3, "/nonexistent" },
        { { "inspect", "/dev/null" }, 2, "not a file" },
        { { "inspect", "/proc/self/status" }, 1, "status" },
        { { "inspect", "a", "b" }, 2, "too many" },
        { { "inspect", "--offset", "1", "a" }, 2, "there is no option --offset; usage" },
        { { "inspect", "--frob", "a" }, 2, "there is no option --frob; usage" },
        { { "cat", "/nonexistent" }, 2, "--offset" },
        { { "cat", "/nonexistent", "--offset" }, 2, "needs a value" },
        { { "cat", "/nonexistent", "--offset", "-1" }, 2, "-1" },
        { { "cat", "/nonexistent", "--offset", "1k" }, 2, "1k" },
        { { "cat", "/nonexistent", "--offset", "0" }, 3, "/nonexistent" },
        { { "verify", "/nonexistent" }, 3, "/nonexistent" },
        { { "verify", "/etc" }, 3, "nothing to verify" },
        { { "verify", "/dev" }, 3, "nothing to verify" },
        { { "inspect", "/etc" }, 2, "not a file" },
        { { "cat", "/etc", "--offset", "0" }, 2, "not a file" },
        { { "ls", "--root", "/dev/null" }, 3, "/dev/null" },
        { { "ls", "--root", "/etc" }, 3, "there is no job in /etc" },
        { { "header", "frob" }, 2, "frob" },
        { { "header", "encode", "float32" }, 2, "shape" },
        { { "header", "encode", "float", "2" }, 2, "float" },
        { { "header", "encode", "float32", "2,,3" }, 2, "2,,3" },
        { { "header", "encode", "float32", "" }, 2, "no shape" },
        { { "header", "encode", "float32", "2," }, 2, "no shape" },
        { { "header", "encode", "float32", "9223372036854775808" }, 2, "no shape" },
        { { "header", "decode", "zz" }, 2, "digit 1" },
        { { "header", "decode", "012" }, 2, "half a byte" },
        { { "header", "decode", "" }, 1, "cut off" },
        { { "header", "decode", "0500000080045d2e00" }, 1, "byte" },
        { { "ls" }, 2, "--root" },
        { { "ls", "--root", "/nonexistent" }, 3, "/nonexistent" },
        { { "ls", "--root", "/dev/shm", "no-such-job" }, 3, "no-such-job" },
        { { "ls", "--root", "/dev/shm", "../etc" }, 3, "../etc" },
        { { "rm" }, 2, "argument is missing" },
        { { "rm", "/" }, 2, "not a save" },
        { { "rm", "/nonexistent" }, 3, "/nonexistent" },
        { { "clean", "job" }, 2, "--root" },
        { { "clean", "--root", "/dev/shm", ".." }, 2, ".." },
        { { "clean", "--root", "/dev/shm", "no-such-job" }, 3, "no-such-job" },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int status = hearth_args(rows[i].args);

        cr_assert(eq(int, status, rows[i].status), "row %zu: %s", i, err_text);
        cr_assert(eq(int, has(err_text, rows[i].says), 1), "row %zu: %s", i, err_text);
        cr_assert(
                eq(sz, strcspn(err_text, "\n") + 1, strlen(err_text)), "row %zu: %s", i, err_text);
        cr_assert(zero(sz, out_len), "row %zu printed: %s", i, out);
    }
}

Test(cli, help_teaches_and_names_each_command)
{
    static const char *const commands[] = { "ls", "inspect", "cat", "verify", "header", "rm", "why",
        "clean", "key", "doctor", "keep", "completion", "metrics", "exporter", "what-if", "plan" };

    cr_assert(zero(int, hearth("--help")));
    cr_assert(eq(int, has(out, "exit status"), 1));
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        cr_assert(zero(int, hearth(commands[i], "--help")));
        cr_assert(eq(int, has(out, "usage: hearth"), 1));
        cr_assert(zero(int, hearth("help", commands[i])));
        cr_assert(eq(int, has(out, "usage: hearth"), 1));
    }
    cr_assert(eq(int, hearth_args((const char *const[]){ NULL }), 2));
    cr_assert(zero(int, hearth("--version")));
    cr_assert(zero(int, hearth("ls", "--env")));
    cr_assert(eq(int, has(out, "HEARTH_ROOT"), 1), "%s", out);
}

Test(cli, options_for_programs_are_all_that_there_are)
{
    static const char *const members[] = { "options", "flags", "variables" };
    json_t *all, *j;

    cr_assert(zero(int, hearth("ls", "--env", "--json")), "%s", err_text);
    all = json_loads(out, 0, NULL);
    cr_assert(ne(ptr, all, NULL), "%s", out);
    for (size_t i = 0; i < 3; i++)
        cr_assert(ne(sz, json_array_size(json_object_get(all, members[i])), 0), "%s", members[i]);
    j = json_array_get(json_object_get(all, "options"), 6);
    must_say(text_of(j, "name"), "copies");
    must_say(text_of(j, "variable"), "HEARTH_COPIES");
    must_say(text_of(j, "default"), "1");
    cr_assert(eq(llong, number(j, "most"), 8));
    json_decref(all);
}

/* "ü" and "層" are shown; an ESC, a character that turns the line's direction and a byte that is
 * none are not. */
Test(cli, a_key_is_printed_as_it_is_where_the_locale_is_utf_8)
{
    char *object;
    struct hth_store *s;

    key_saved = "h\xc3\xbclle.\xe5\xb1\xa4\x1b\xe2\x80\xae\xff.w";
    s = make_store();
    object = strdup(in_job("step-40_ckpt/shard"));
    s->ops->close(s);
    setenv("LC_ALL", "C.UTF-8", 1);
    cr_assert(zero(int, hearth("inspect", object)), "%s", err_text);
    cr_assert(eq(int, has(out, "h\xc3\xbclle.\xe5\xb1\xa4?????.w"), 1), "%s", out);
    setenv("LC_ALL", "C", 1);
    cr_assert(zero(int, hearth("inspect", object)), "%s", err_text);
    cr_assert(eq(int, has(out, "h??lle.????????.w"), 1), "%s", out);
    free(object);
}
