/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options from the environment, for programs and adapters, by the table of options. A variable
 * whose name begins like an option's and that is not read is kept for the first open, which logs
 * it.
 */
#include "env.h"

#include "core/base/fail.h"
#include "core/base/options.h"
#include "core/base/opts.h"
#include "core/format/epoch.h"
#include <errno.h>
#include <hearth/hearth.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Lists live until exit; the chain keeps them in sight of leak checkers. */
static struct list {
    struct list *next;
    const char *name[HTH_DOMAINS_MAX];
    size_t count;
    char text[];
} * lists;
static pthread_mutex_t lists_lock = PTHREAD_MUTEX_INITIALIZER;

static int env_bad(const struct hth_option *option, const char *value, const char *may,
        struct hearth_error *err)
{
    return hth_fail(err, HEARTH_EINVAL, 0, "%s is '%.80s': give %s", option->variable, value, may);
}

static int env_number(const struct hth_option *option, const char *value, uint64_t most,
        uint64_t *out, struct hearth_error *err)
{
    char *end;

    errno = 0;
    *out = strtoull(value, &end, 10);
    if (errno || end == value || *end || value[0] < '0' || value[0] > '9' || *out > most)
        return env_bad(
                option, value, most == 1 ? "0 or 1" : "a whole number that is not too large", err);
    return HEARTH_OK;
}

static int env_word(
        const struct hth_option *option, const char *value, uint64_t *out, struct hearth_error *err)
{
    const struct hth_word *found = hth_option_word(option, value);
    char words[HTH_OPTION_WORDS];

    if (!found)
        return env_bad(option, value, hth_option_words(option, words), err);
    *out = found->value;
    return HEARTH_OK;
}

static int list_of(struct hearth_opts *o, const struct hth_option *option, const char *value,
        struct hearth_error *err)
{
    size_t size = strlen(value) + 1;
    struct list *list = calloc(1, sizeof(*list) + size);
    char *save = NULL;

    if (!list)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %s", option->variable);
    memcpy(list->text, value, size);
    for (char *p = strtok_r(list->text, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
        if (list->count == HTH_DOMAINS_MAX) {
            free(list);
            return env_bad(option, value, "at most four names with commas between", err);
        }
        list->name[list->count++] = p;
    }
    pthread_mutex_lock(&lists_lock);
    list->next = lists;
    lists = list;
    pthread_mutex_unlock(&lists_lock);
    o->domains = list->name;
    o->domain_count = list->count;
    return HEARTH_OK;
}

static int env_take(struct hearth_opts *o, const struct hth_option *option, const char *value,
        struct hearth_error *err)
{
    uint64_t most = option->kind == HTH_OPTION_U64      ? UINT64_MAX
                    : option->kind == HTH_OPTION_SWITCH ? 1
                                                        : UINT32_MAX;
    uint64_t v = 0;
    int rc;

    if (option->kind == HTH_OPTION_LIST)
        return list_of(o, option, value, err);
    if (hth_option_is_text(option)) {
        hth_option_set_text(option, o, value);
        return HEARTH_OK;
    }
    rc = option->kind == HTH_OPTION_WORD ? env_word(option, value, &v, err)
                                         : env_number(option, value, most, &v, err);
    if (!rc)
        hth_option_set_number(option, o, v);
    return rc;
}

static int is_set(const struct hearth_opts *o, const struct hth_option *option)
{
    if (option->kind == HTH_OPTION_LIST)
        return o->domains != NULL;
    return hth_option_is_text(option) ? hth_option_text(option, o) != NULL
                                      : hth_option_number(option, o) != 0;
}

/* ---- variables that are not read ------------------------------------------------------------ */

static struct {
    pthread_mutex_t lock;
    enum { UNREAD = 0, FOUND, SAID } state;
    unsigned count;
    char text[HTH_STRAYS][HTH_STRAY_TEXT];
} strays = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void strays_look(void)
{
    pthread_mutex_lock(&strays.lock);
    for (char **at = strays.state == UNREAD ? environ : NULL; at && *at; at++) {
        size_t len = strcspn(*at, "=");

        if (strncmp(*at, "HEARTH_", 7) != 0 || hth_variable_known(*at, len))
            continue;
        if (strays.count < HTH_STRAYS)
            snprintf(strays.text[strays.count], HTH_STRAY_TEXT,
                    "nothing reads the variable %.*s; the nearest that is read is %s",
                    len < 64 ? (int)len : 64, *at, hth_variable_nearest(*at, len));
        strays.count++;
    }
    if (strays.state == UNREAD)
        strays.state = FOUND;
    pthread_mutex_unlock(&strays.lock);
}

unsigned hth_strays(char out[HTH_STRAYS][HTH_STRAY_TEXT])
{
    unsigned count;

    pthread_mutex_lock(&strays.lock);
    count = strays.state == FOUND ? strays.count : 0;
    if (strays.state == FOUND)
        strays.state = SAID;
    pthread_mutex_unlock(&strays.lock);
    memcpy(out, strays.text, sizeof(strays.text));
    return count;
}

int hearth_opts_from_env(struct hearth_opts *opts, struct hearth_error *err)
{
    struct hearth_opts o;
    int rc;

    if (!opts)
        return hth_fail(err, HEARTH_EINVAL, 0, "opts is NULL: begin with HEARTH_OPTS_INIT");
    if ((rc = hth_opts_copy(&o, sizeof(o), opts, err)))
        return rc;
    strays_look();
    for (size_t i = 0; i < HTH_OPTIONS; i++) {
        const struct hth_option *option = &hth_options[i];
        const char *value = option->variable ? getenv(option->variable) : NULL;

        /* An older caller has no place for the value, and cannot know of the variable. */
        if (!value || !value[0] || option->at >= o.struct_size || is_set(&o, option))
            continue;
        if ((rc = env_take(&o, option, value, err)))
            return rc;
    }
    return hth_give(opts, &o, sizeof(o), err);
}
