/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables for people. A table is as wide as the terminal at most: columns that are not needed are
 * left out, then the last column goes on in further lines. No cell is ever cut. A pipe or a file
 * has each row in one line, unless COLUMNS is set.
 */
#include "cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define GAP     2u
#define COLUMNS 16u

size_t terminal_width(void)
{
    const char *text = getenv("COLUMNS");
    long set = text ? strtol(text, NULL, 10) : 0;
    struct winsize size = { 0 };

    if (set > 0 && set <= 10000)
        return (size_t)set;
    if (!isatty(STDOUT_FILENO))
        return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col ? 80 : size.ws_col;
}

/* ---- colour ---------------------------------------------------------------------------------- */

static int tone_is_on(void)
{
    const char *no = getenv("NO_COLOR"), *terminal = getenv("TERM");

    return !(no && *no) && isatty(STDOUT_FILENO) && !(terminal && !strcmp(terminal, "dumb"));
}

/* Of a word that is a state. */
static const char *tone_of(const char *word)
{
    static const struct {
        const char *word, *tone;
    } rows[] = { { "protected", "32" }, { "well", "32" }, { "ok", "32" }, { "degraded", "33" },
        { "at risk", "33" }, { "unreachable", "33" }, { "silent", "33" }, { "bad", "31" },
        { "broken", "31" }, { "lost", "31" }, { "failed", "31" }, { "unfinished", "2" } };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (!strcmp(rows[i].word, word))
            return rows[i].tone;
    return NULL;
}

void say_state(const char *word)
{
    const char *tone = tone_is_on() ? tone_of(word) : NULL;

    if (tone)
        printf("\033[%sm", tone);
    say("%s", word);
    if (tone)
        fputs("\033[0m", stdout);
}

/* ---- the table ------------------------------------------------------------------------------- */

void grid_add(struct grid *g, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (g->cells == g->room) {
        size_t room = g->room ? 2 * g->room : 64;
        char **cell = realloc(g->cell, room * sizeof(*cell));

        if (!cell)
            return;
        g->cell = cell;
        g->room = room;
    }
    g->cell[g->cells++] = printable(text);
}

void grid_titles(struct grid *g, const char *const *titles)
{
    for (size_t i = 0; i < g->columns; i++)
        grid_add(g, "%s", titles[i]);
}

static const char *grid_cell(const struct grid *g, size_t row, size_t column)
{
    size_t i = row * g->columns + column;

    return i < g->cells && g->cell[i] ? g->cell[i] : "";
}

/* Characters: bytes that do not continue one. */
static size_t grid_length(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += (*text & 0xc0) != 0x80;
    return n;
}

static void grid_pad(size_t count)
{
    for (; count; count--)
        fputc(' ', stdout);
}

/* As many whole words of *text as fit into `width`, one at least; *text goes behind them. */
static void grid_put_words(const char **text, size_t width)
{
    const char *at = *text, *end = at + strcspn(at, " ");

    for (const char *next = end; *next; end = next) {
        next += strspn(next, " ");
        next += strcspn(next, " ");
        if ((size_t)(next - at) > width)
            break;
    }
    fwrite(at, 1, (size_t)(end - at), stdout);
    *text = end + strspn(end, " ");
}

/* A text that begins at column `at` of the line, behind `gap` blanks. */
static void grid_put_last(const char *text, size_t at, size_t width, size_t gap)
{
    size_t indent = at;
    int fits = !width || at + grid_length(text) <= width;
    int below = !fits && (at + 24 > width || !strchr(text, ' ')); /* its words do not fit there */

    if (*text && at && !below)
        grid_pad(gap);
    if (fits) {
        fputs(text, stdout);
        return;
    }
    if (below) {
        indent = 4;
        fputc('\n', stdout);
        grid_pad(indent);
    }
    grid_put_words(&text, width > indent ? width - indent : 1);
    while (*text) {
        fputc('\n', stdout);
        grid_pad(indent);
        grid_put_words(&text, width > indent ? width - indent : 1);
    }
}

void say_field(const char *label, const char *fmt, ...)
{
    char text[4096 + 256], *shown;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    shown = printable(text);
    printf("%-8s", label);
    grid_put_last(shown ? shown : "", 8, terminal_width(), 0);
    fputc('\n', stdout);
    free(shown);
}

static void grid_put_cell(const char *text, size_t width, char how)
{
    size_t len = grid_length(text), pad = width > len ? width - len : 0;

    if (how == 'r')
        grid_pad(pad);
    if (how == 's')
        say_state(text);
    else
        fputs(text, stdout);
    if (how != 'r')
        grid_pad(pad);
}

/* The last cell that is shown, which begins at column `at` of the line. */
static void grid_end_row(const char *text, size_t wide, char how, size_t at, size_t width)
{
    if (how == 'l') {
        grid_put_last(text, at, width, GAP);
    } else {
        grid_pad(at ? GAP : 0);
        grid_put_cell(text, how == 'r' ? wide : 0, how);
    }
    fputc('\n', stdout);
}

/* Columns that fit; width 0: any. */
static size_t grid_fit(const struct grid *g, const size_t *wide, size_t width)
{
    size_t shown = g->columns, sum = 0;

    for (size_t c = 0; c < g->columns; c++)
        sum += wide[c] + (c ? GAP : 0);
    while (width && sum > width && g->needed && shown > g->needed)
        sum -= wide[--shown] + GAP;
    return shown;
}

void grid_print(const struct grid *g, const char *how)
{
    size_t wide[COLUMNS] = { 0 }, width = terminal_width(), shown;

    for (size_t i = 0; i < g->cells; i++) {
        size_t len = g->cell[i] ? grid_length(g->cell[i]) : 0;

        if (len > wide[i % g->columns])
            wide[i % g->columns] = len;
    }
    shown = grid_fit(g, wide, width);
    for (size_t row = 0; row * g->columns < g->cells; row++) {
        size_t at = 0;

        for (size_t c = 0; c + 1 < shown; at += wide[c] + GAP, c++) {
            grid_pad(c ? GAP : 0);
            grid_put_cell(grid_cell(g, row, c), wide[c], how[c]);
        }
        grid_end_row(grid_cell(g, row, shown - 1), wide[shown - 1], how[shown - 1], at, width);
    }
}

void grid_free(struct grid *g)
{
    for (size_t i = 0; i < g->cells; i++)
        free(g->cell[i]);
    free(g->cell);
    *g = (struct grid){ 0 };
}
