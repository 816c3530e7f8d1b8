/* SPDX-License-Identifier: Apache-2.0 */
/* `.metadata` of other libraries: what it decodes to, and what is refused. */
#include "check.h"
#include "metadata_json.h"
#include "vectors.h"

#include <dirent.h>
#include <unistd.h>

enum { FILE_NAME, READER, LAYER, VERDICT, WHAT, FIELDS };

static void limit(void)
{
    alarm(240);
}

TestSuite(metadata, .init = limit, .timeout = 240);

static struct hearth_error err;

static int read_metadata(const unsigned char *bytes, size_t len, json_t **out)
{
    struct hearth_metadata *md = NULL;
    int rc = hearth_metadata_open(bytes, len, &md, &err);

    if (rc) {
        cr_assert(eq(int, rc, HEARTH_ECORRUPT));
        cr_assert(zero(int, strncmp(err.text, "byte ", 5)), "%s", err.text);
        return rc;
    }
    *out = metadata_json(md);
    cr_assert(ne(ptr, *out, NULL));
    hearth_metadata_close(md);
    return 0;
}

/* ---- What it decodes to
 * ----------------------------------------------------------------------- */

/* The row of this name, most likely at `hint`. */
static json_t *find_name(json_t *list, json_t *name, size_t hint)
{
    size_t i;
    json_t *row = json_array_get(list, hint);

    if (json_equal(json_object_get(row, "fqn"), name))
        return row;
    json_array_foreach(list, i, row) if (json_equal(json_object_get(row, "fqn"), name)) return row;
    return NULL;
}

/* The JSON of a sample, without what the reader does not give out: the order of planner_data, and
 * of some lists the elements. */
static json_t *wanted(json_t *full)
{
    json_t *meta = json_object_get(full, "storage_meta"),
           *id = json_object_get(meta, "checkpoint_id");
    json_t *entries = json_object_get(full, "state_dict_metadata"), *row;
    json_t *planner = json_object_get(full, "planner_data"), *paths = json_array();
    json_t *places = json_deep_copy(json_object_get(full, "storage_data"));
    const char *type = json_string_value(json_object_get(id, "type"));
    size_t i;

    json_array_foreach(places, i, row)
    {
        json_object_set_new(row, "transforms",
                json_integer((json_int_t)json_array_size(
                        json_object_get(row, "transform_descriptors"))));
        json_object_del(row, "transform_descriptors");
    }
    json_array_foreach(entries, i, row) if (json_is_array(planner))
            json_array_append(paths, find_name(planner, json_object_get(row, "fqn"), i));
    id = type ? json_pack("{s:b,s:O}", "path", strcmp(type, "str") != 0, "value",
                        json_object_get(id, "value"))
              : json_null();
    meta = json_pack("{s:o,s:O?,s:O?,s:i}", "checkpoint_id", id, "save_id",
            json_object_get(meta, "save_id"), "load_id", json_object_get(meta, "load_id"),
            "modules", (int)json_array_size(json_object_get(meta, "modules")));
    if (!json_is_array(planner)) {
        json_decref(paths);
        paths = json_null();
    }
    return json_pack("{s:O,s:o,s:O,s:o,s:o}", "version", json_object_get(full, "version"),
            "storage_meta", meta, "state_dict_metadata", entries, "planner_data", paths,
            "storage_data", places);
}

static void same_json(json_t *got, json_t *want, const char *name)
{
    char *a, *b;

    if (json_equal(got, want))
        return;
    a = json_dumps(got, JSON_SORT_KEYS);
    b = json_dumps(want, JSON_SORT_KEYS);
    cr_assert_fail("%s:\ngot    %.3000s\nwanted %.3000s", name, a, b);
}

/* `base` with the ending of a pickle, and with .json. */
static void sample(const char *base, const char *ending)
{
    char name[512];
    json_t *full, *want, *got = NULL;
    struct file f, text;
    int rc;

    snprintf(name, sizeof(name), "%s%s", base, ending);
    f = file_read(name);
    rc = read_metadata(f.at, f.len, &got);
    cr_assert(eq(int, rc, 0), "%s: %s", name, err.text);
    snprintf(name, sizeof(name), "%s.json", base);
    text = file_read(name);
    full = json_loadb((char *)text.at, text.len, JSON_ALLOW_NUL, NULL);
    cr_assert(ne(ptr, full, NULL), "%s", name);
    want = wanted(full);
    same_json(got, want, name);
    json_decref(got);
    json_decref(want);
    json_decref(full);
    free(f.at);
    free(text.at);
}

/* Calls `each` with the name, without its ending, of every file of the folder that has it. */
static size_t every(
        const char *folder, const char *ending, void (*each)(const char *base, const char *ending))
{
    char path[1024], base[512];
    struct dirent *e;
    size_t n = 0;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/%s", getenv("HEARTH_TEST_DATA"), folder);
    dir = opendir(path);
    cr_assert(ne(ptr, dir, NULL), "%s", path);
    while ((e = readdir(dir))) {
        size_t len = strlen(e->d_name), end = strlen(ending);

        if (len <= end || strcmp(e->d_name + len - end, ending) != 0)
            continue;
        snprintf(base, sizeof(base), "%s/%.*s", folder, (int)(len - end), e->d_name);
        each(base, ending);
        n++;
    }
    closedir(dir);
    return n;
}

Test(metadata, every_sample_decodes_to_its_json)
{
    cr_assert(eq(sz, every("metadata", ".metadata", sample), 67));
    cr_assert(eq(sz, every("metadata/standin", ".pkl", sample), 32));
}

/* ---- Verdicts
 * --------------------------------------------------------------------------------- */

static json_t *decode(const char *name)
{
    struct file f = file_read(name);
    json_t *out = NULL;
    int rc = read_metadata(f.at, f.len, &out);

    cr_assert(eq(int, rc, 0), "%s: %s", name, err.text);
    free(f.at);
    return out;
}

/* The text `from` of the JSON is `to` instead. */
static json_t *with(json_t *plain, const char *from, const char *to)
{
    char *text = json_dumps(plain, JSON_SORT_KEYS | JSON_COMPACT), *at;
    char *out = calloc(1, strlen(text) * 10 + 40 * strlen(to));
    size_t n = 0, len = strlen(from);
    json_t *json;

    for (at = text; *at;) {
        if (strncmp(at, from, len) != 0) {
            out[n++] = *at++;
            continue;
        }
        n += (size_t)sprintf(out + n, "%s", to);
        at += len;
    }
    json = json_loads(out, JSON_ALLOW_NUL, NULL);
    cr_assert(ne(ptr, json, NULL), "%s", out);
    free(text);
    free(out);
    return json;
}

static void plain_is_as_told(json_t *plain)
{
    static const char told[] =
            "{'version':'1.0.0','storage_meta':{'checkpoint_id':{'path':false,'value':'ckpt'},"
            "'save_id':'s','load_id':null,'modules':0},'state_dict_metadata':[{'fqn':'w','type':"
            "'tensor','dtype':'float32','size':[4,3],'layout':'strided','requires_grad':false,"
            "'memory_format':'contiguous_format','pin_memory':false,'chunks':[{'offsets':[0,0],"
            "'sizes':[4,3]}]}],'planner_data':[{'fqn':'w','path':['w']}],'storage_data':[{'fqn':'w',"
            "'offset':[0,0],'index':0,'relative_path':'__0_0.distcp','file_offset':0,'length':1641,"
            "'transforms':0}]}";
    char text[sizeof(told)];
    json_t *want;

    for (size_t i = 0; i < sizeof(told); i++)
        text[i] = told[i] == '\'' ? '"' : told[i];
    want = json_loads(text, 0, NULL);
    cr_assert(ne(ptr, want, NULL));
    same_json(plain, want, "m_ok_plain");
    json_decref(want);
}

static void means(const char *file, json_t *got)
{
    static char longer[5003];
    static const struct {
        const char *file, *from, *to;
    } t[] = {
        { "m_ok_plain", "", NULL },
        { "m_ok_getattr_enum", "", NULL },
        { "m_ok_unknown_attr", "", NULL },
        { "m_ok_posixpath_313", "\"path\":false,\"value\":\"ckpt\"",
                "\"path\":true,\"value\":\"a/b\"" },
        { "m_ok_nul_in_fqn", "\"w\"", "\"a\\u0000b\"" },
        { "m_name_empty", "\"w\"", "\"\"" },
        { "m_name_long", "\"w\"", longer },
        { "m_index_huge_hint", "\"index\":0", "\"index\":2147483647" },
        { "m_ok_no_chunks_stored", "", NULL },
    };
    json_t *plain = decode("hostile/m_ok_plain.pkl"), *want;
    size_t i = 0, len = strcspn(file, ".");

    memset(longer, 'n', 5002);
    longer[0] = longer[5001] = '"';
    plain_is_as_told(plain);
    while (i < sizeof(t) / sizeof(t[0]) &&
            (strlen(t[i].file) != len || strncmp(t[i].file, file, len) != 0))
        i++;
    cr_assert(lt(sz, i, sizeof(t) / sizeof(t[0])), "%s: nobody knows its meaning", file);
    if (!strcmp(t[i].file, "m_ok_no_chunks_stored")) {
        json_t *e = json_array_get(json_object_get(got, "state_dict_metadata"), 0);
        json_t *s = json_array_get(json_object_get(got, "storage_data"), 0);

        must_say(json_string_value(json_object_get(e, "fqn")), "e");
        cr_assert(eq(i64, json_integer_value(json_array_get(json_object_get(e, "size"), 1)), 3));
        cr_assert(eq(i64, json_integer_value(json_object_get(s, "length")), 0));
    } else {
        want = t[i].to ? with(plain, t[i].from, t[i].to) : json_incref(plain);
        same_json(got, want, file);
        json_decref(want);
    }
    json_decref(plain);
}

static int judge(char **field)
{
    json_t *got = NULL;
    char name[256];
    struct file f;
    int rc;

    snprintf(name, sizeof(name), "hostile/%s", field[FILE_NAME]);
    f = file_read(name);
    rc = read_metadata(f.at, f.len, &got);
    if (!strncmp(field[VERDICT], "refuse", 6)) {
        cr_assert(ne(int, rc, 0), "%s was accepted: %s", name, field[WHAT]);
    } else if (!strncmp(field[VERDICT], "ok", 2)) {
        cr_assert(eq(int, rc, 0), "%s was refused: %s", name, err.text);
        means(field[FILE_NAME], got);
    }
    json_decref(got);
    free(f.at);
    return rc == 0;
}

Test(metadata, every_hostile_input_gets_its_verdict)
{
    struct file index = file_read("hostile/index.tsv");
    size_t pos = 0, rows = 0;
    char *field[FIELDS];

    row_next(&index, &pos, field, FIELDS);
    while (row_next(&index, &pos, field, FIELDS)) {
        if (strcmp(field[READER], "metadata") != 0 && strcmp(field[READER], "both") != 0)
            continue;
        judge(field);
        rows++;
    }
    cr_assert(eq(sz, rows, 151), "%zu", rows);
    free(index.at);
}

Test(metadata, a_refusal_names_the_byte_and_the_global)
{
    static const unsigned char evil[] = "\x80\x04\x8c\x02os\x8c\x06system\x93.";
    json_t *got;

    must_fail(read_metadata(evil, sizeof(evil) - 1, &got), HEARTH_ECORRUPT);
    must_say(err.text, "byte 15: what the pickle holds is no Metadata, but 'system' of 'os'");
}

/* ---- Damage
 * ----------------------------------------------------------------------------------- */

static void prefixes(const char *base, const char *ending)
{
    struct hearth_metadata *md;
    char name[512];
    struct file f;
    size_t stride;

    snprintf(name, sizeof(name), "%s%s", base, ending);
    f = file_read(name);
    stride = f.len / (f.len > 100000 ? 50 : 700) + 1; /* all of the small ones */
    for (size_t cut = 0; cut < f.len; cut += cut + 40 < f.len ? stride : 1) {
        unsigned char *exact = malloc(cut ? cut : 1);

        memcpy(exact, f.at, cut);
        must_fail(hearth_metadata_open(exact, cut, &md, &err), HEARTH_ECORRUPT);
        free(exact);
    }
    free(f.at);
}

Test(metadata, every_proper_prefix_is_refused)
{
    every("metadata", ".metadata", prefixes);
    every("metadata/standin", ".pkl", prefixes);
    every("hostile", "m_ok_plain.pkl", prefixes);
    prefixes("hostile/m_ok_getattr_enum", ".pkl");
    prefixes("hostile/m_ok_posixpath_313", ".pkl");
    prefixes("hostile/m_ok_unknown_attr", ".pkl");
    prefixes("hostile/m_ok_nul_in_fqn", ".pkl");
    prefixes("hostile/m_ok_no_chunks_stored", ".pkl");
}

/* One byte after the other is something else: refused, or read to the end by every call. */
static void changes(const char *base, const char *ending)
{
    static const unsigned char flip[] = { 0x01, 0x80, 0x13, 0xff };
    char name[512];
    struct file f;

    snprintf(name, sizeof(name), "%s%s", base, ending);
    f = file_read(name);
    if (f.len <= 4096)
        for (size_t i = 0; i < f.len; i++) {
            json_t *got = NULL;

            f.at[i] ^= flip[i % sizeof(flip)];
            if (!read_metadata(f.at, f.len, &got))
                json_decref(got);
            f.at[i] ^= flip[i % sizeof(flip)];
        }
    free(f.at);
}

Test(metadata, a_changed_byte_is_refused_or_read)
{
    every("metadata", ".metadata", changes);
    every("metadata/standin", ".pkl", changes);
}

/* ---- Calls
 * ------------------------------------------------------------------------------------ */

Test(metadata, what_is_not_there_is_not_found)
{
    struct file f = file_read("hostile/m_ok_plain.pkl");
    struct hearth_metadata_entry e = { .struct_size = sizeof(e) };
    struct hearth_metadata_stored s = { .struct_size = sizeof(s) };
    struct hearth_metadata_chunk c = { .struct_size = sizeof(c) };
    int64_t zero[65] = { 0 }, one[2] = { 1, 0 };
    struct hearth_metadata *md;

    must(hearth_metadata_open(f.at, f.len, &md, NULL));
    must(hearth_metadata_entry_find(md, "w", 1, &e, NULL));
    must_fail(hearth_metadata_entry_find(md, "v", 1, &e, NULL), HEARTH_ENOENT);
    must_fail(hearth_metadata_entry_find(md, NULL, 0, &e, NULL), HEARTH_ENOENT);
    must_fail(hearth_metadata_entry_find(md, NULL, 1, &e, NULL), HEARTH_EINVAL);
    must_fail(hearth_metadata_chunk_at(md, 1, 0, &c, NULL), HEARTH_ENOENT);
    must(hearth_metadata_stored_find(md, "w", 1, zero, 2, &s, NULL));
    must_fail(hearth_metadata_stored_find(md, "w", 1, one, 2, &s, NULL), HEARTH_ENOENT);
    must_fail(hearth_metadata_stored_find(md, "w", 1, zero, 1, &s, NULL), HEARTH_ENOENT);
    must_fail(hearth_metadata_stored_find(md, "w", 1, zero, 65, &s, NULL), HEARTH_ENOENT);
    must_fail(hearth_metadata_stored_find(md, "w", 1, NULL, 0, &s, NULL), HEARTH_ENOENT);
    must_fail(hearth_metadata_open(NULL, 1, &md, NULL), HEARTH_EINVAL);
    must_fail(hearth_metadata_open(f.at, f.len, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_metadata_info(NULL, NULL, NULL), HEARTH_EINVAL);
    hearth_metadata_close(md);
    hearth_metadata_close(NULL);
    free(f.at);
}
