/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth_train_report: what the events of a control run and of a run with losses say together, as
 * a table for people and as JSON. Ends with 1 unless every loss was survived as promised.
 */
#include <getopt.h>
#include <glob.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOSSES  16
#define NODES   256
#define STEPS   100000
#define SAMPLES 200000

struct samples {
    size_t count;
    double value[SAMPLES];
};

struct recovery { /* of one launch */
    bool scratch;
    uint32_t ranks; /* that recovered */
    int64_t step;   /* -1: ranks differ */
    double total_ms, load_ms, join_ms, inventory_ms, plan_ms, pull_ms, verify_ms, vote_ms;
    uint64_t pulled[NODES];
    uint32_t sources[NODES];
    char text[512];
};

struct launch {
    int64_t last_step, last_protected; /* 0: none */
    struct recovery recovery;
};

struct run {
    struct launch launch[LOSSES + 1];
    char bits[STEPS][17];
    int64_t steps; /* the highest */
    bool differs;  /* a step repeated with other bits */
    char weights[65];
    uint64_t shard_bytes;
    uint32_t failed_saves;
    struct samples step_ms, blocked_ms, protected_ms;
};

struct loss {
    uint32_t launch, node;
    char where[16];
};

static struct {
    const char *control, *run, *json, *how;
    uint32_t nodes, ranks; /* ranks: of a node */
    size_t losses;
    struct loss loss[LOSSES];
} args;

static struct run control, run;

/* ---- reading ------------------------------------------------------------------------ */

static double number(const char *line, const char *key)
{
    char quoted[40];
    const char *at;

    snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    at = strstr(line, quoted);
    return at ? strtod(at + strlen(quoted), NULL) : 0;
}

static void string(const char *line, const char *key, char *out, size_t size)
{
    char quoted[40];
    const char *at;
    size_t len = 0;

    snprintf(quoted, sizeof(quoted), "\"%s\":\"", key);
    at = strstr(line, quoted);
    if (at) {
        at += strlen(quoted);
        len = strcspn(at, "\"");
        len = len < size ? len : size - 1;
        memcpy(out, at, len);
    }
    out[len] = 0;
}

static void sample(struct samples *samples, double value)
{
    if (samples->count < SAMPLES)
        samples->value[samples->count++] = value;
}

static void highest(double *most, double value)
{
    *most = value > *most ? value : *most;
}

static void read_step(struct run *out, struct launch *launch, const char *line)
{
    int64_t step = (int64_t)number(line, "step");
    char bits[17];

    if (step <= 0 || step >= STEPS)
        return;
    string(line, "bits", bits, sizeof(bits));
    if (out->bits[step][0] && strcmp(out->bits[step], bits) != 0)
        out->differs = true;
    memcpy(out->bits[step], bits, sizeof(bits));
    out->steps = step > out->steps ? step : out->steps;
    launch->last_step = step > launch->last_step ? step : launch->last_step;
    sample(&out->step_ms, number(line, "ms"));
}

static void read_recovered(struct recovery *out, uint32_t rank, const char *line)
{
    int64_t step = (int64_t)number(line, "step");
    uint32_t node = rank / args.ranks;

    out->step = out->ranks++ == 0 || out->step == step ? step : -1;
    highest(&out->total_ms, number(line, "ms") + number(line, "load_ms"));
    highest(&out->load_ms, number(line, "load_ms"));
    highest(&out->join_ms, number(line, "join_ms"));
    highest(&out->inventory_ms, number(line, "inventory_ms"));
    highest(&out->plan_ms, number(line, "plan_ms"));
    highest(&out->pull_ms, number(line, "pull_ms"));
    highest(&out->verify_ms, number(line, "verify_ms"));
    highest(&out->vote_ms, number(line, "vote_ms"));
    if (rank % args.ranks == 0 && node < NODES) { /* the figures are the node's */
        out->pulled[node] = (uint64_t)number(line, "pulled_bytes");
        out->sources[node] = (uint32_t)number(line, "sources");
    }
    if (rank == 0)
        string(line, "text", out->text, sizeof(out->text));
}

static void read_line(struct run *out, const char *line)
{
    char name[32];
    uint32_t number_of_launch = (uint32_t)number(line, "launch");
    struct launch *launch = &out->launch[number_of_launch <= LOSSES ? number_of_launch : LOSSES];
    int64_t step = (int64_t)number(line, "step");

    string(line, "event", name, sizeof(name));
    if (strcmp(name, "start") == 0) {
        out->shard_bytes = (uint64_t)number(line, "shard_bytes");
    } else if (strcmp(name, "step") == 0) {
        read_step(out, launch, line);
    } else if (strcmp(name, "saved") == 0) {
        sample(&out->blocked_ms, number(line, "ms"));
    } else if (strcmp(name, "protected") == 0) {
        sample(&out->protected_ms, number(line, "ms"));
        launch->last_protected = step > launch->last_protected ? step : launch->last_protected;
    } else if (strcmp(name, "recovered") == 0) {
        read_recovered(&launch->recovery, (uint32_t)number(line, "rank"), line);
    } else if (strcmp(name, "scratch") == 0) {
        launch->recovery.scratch = true;
    } else if (strcmp(name, "failed") == 0) {
        out->failed_saves++;
    } else if (strcmp(name, "done") == 0) {
        string(line, "weights", out->weights, sizeof(out->weights));
    }
}

static int read_run(const char *dir, struct run *out)
{
    char pattern[4096], line[4096];
    glob_t found;

    snprintf(pattern, sizeof(pattern), "%s/rank*.jsonl", dir);
    if (glob(pattern, 0, NULL, &found) != 0) {
        fprintf(stderr, "hearth_train_report: no events in %s\n", dir);
        return -1;
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        FILE *file = fopen(found.gl_pathv[i], "r");

        while (file && fgets(line, sizeof(line), file))
            read_line(out, line);
        if (file)
            fclose(file);
    }
    globfree(&found);
    return 0;
}

/* ---- judging ------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(struct samples *samples)
{
    if (samples->count == 0)
        return 0;
    qsort(samples->value, samples->count, sizeof(samples->value[0]), by_value);
    return samples->value[samples->count / 2];
}

static bool identical(void)
{
    if (control.steps == 0 || control.steps != run.steps || control.differs || run.differs)
        return false;
    for (int64_t step = 1; step <= control.steps; step++)
        if (!control.bits[step][0] || strcmp(control.bits[step], run.bits[step]) != 0)
            return false;
    return control.weights[0] && strcmp(control.weights, run.weights) == 0;
}

static int64_t protected_before(const struct loss *loss)
{
    int64_t newest = 0;

    for (uint32_t l = 0; l <= loss->launch && l <= LOSSES; l++)
        if (run.launch[l].last_protected > newest)
            newest = run.launch[l].last_protected;
    return newest;
}

static const struct recovery *after(const struct loss *loss)
{
    return &run.launch[loss->launch + 1].recovery;
}

static uint64_t pulled(const struct recovery *recovery)
{
    uint64_t sum = 0;

    for (uint32_t n = 0; n < args.nodes; n++)
        sum += recovery->pulled[n];
    return sum;
}

/* The new node has what the lost one had, and has it from others. */
static bool survived(const struct loss *loss)
{
    const struct recovery *recovery = after(loss);
    int64_t before = protected_before(loss);

    return !recovery->scratch && recovery->ranks == args.nodes * args.ranks && before > 0 &&
           recovery->step >= before && recovery->pulled[loss->node] >= args.ranks * run.shard_bytes;
}

/* ---- saying ------------------------------------------------------------------------- */

static void say_loss(const struct loss *loss, size_t index)
{
    const struct recovery *r = after(loss);

    printf("\nLoss %zu: node %u, %s, at step %" PRId64 "; newest PROTECTED step before: %" PRId64
           "\n",
            index + 1, loss->node,
            strcmp(loss->where, "middle") == 0 ? "in the middle of a save" : "between saves",
            run.launch[loss->launch].last_step, protected_before(loss));
    if (r->scratch || r->ranks == 0) {
        printf("  NOT RECOVERED: the job started from scratch or not at all\n");
        return;
    }
    printf("  resumed at step %" PRId64 "%s\n", r->step,
            survived(loss) ? "" : "   NOT AS PROMISED");
    printf("  recovery %.0f ms: join %.0f, inventory %.0f, plan %.0f, pull %.0f, verify %.0f, "
           "vote %.0f, load %.0f\n",
            r->total_ms, r->join_ms, r->inventory_ms, r->plan_ms, r->pull_ms, r->verify_ms,
            r->vote_ms, r->load_ms);
    for (uint32_t n = 0; n < args.nodes; n++)
        printf("  node %u pulled %.1f MiB from %u node%s\n", n, (double)r->pulled[n] / (1 << 20),
                r->sources[n], r->sources[n] == 1 ? "" : "s");
    if (r->text[0])
        printf("  %s\n", r->text);
}

static double slowest_recovery(void)
{
    double most = 0;

    for (size_t i = 0; i < args.losses; i++)
        highest(&most, after(&args.loss[i])->total_ms);
    return most;
}

static void say(size_t kept)
{
    printf("%u nodes x %u ranks, %.1f MiB a rank, %" PRId64 " steps, %s\n", args.nodes, args.ranks,
            (double)run.shard_bytes / (1 << 20), run.steps, args.how);
    printf("  %-26s %10s\n", "", "median ms");
    printf("  %-26s %10.1f\n", "step, control run", median(&control.step_ms));
    printf("  %-26s %10.1f\n", "step, run with losses", median(&run.step_ms));
    printf("  %-26s %10.1f  (%zu saves of a rank)\n", "blocked by a save", median(&run.blocked_ms),
            run.blocked_ms.count);
    printf("  %-26s %10.1f  (%zu)\n", "from begin to PROTECTED", median(&run.protected_ms),
            run.protected_ms.count);
    if (run.failed_saves)
        printf("  %u saves of a rank failed\n", run.failed_saves);
    for (size_t i = 0; i < args.losses; i++)
        say_loss(&args.loss[i], i);
    printf("\nlosses survived: %zu of %zu; losses of training and final weights %s\n", kept,
            args.losses,
            identical() ? "are the control run's, bit for bit" : "DIFFER from the control run's");
}

static int write_json(size_t kept)
{
    FILE *file = fopen(args.json, "w");
    uint64_t sum = 0;

    if (!file) {
        fprintf(stderr, "hearth_train_report: cannot write %s\n", args.json);
        return -1;
    }
    for (size_t i = 0; i < args.losses; i++)
        sum += pulled(after(&args.loss[i]));
    fprintf(file,
            "{\"identical\": %s, \"losses_survived\": %zu, \"recovery_ms\": %.1f, "
            "\"blocked_ms_median\": %.2f, \"protected_ms_median\": %.2f, \"pulled_bytes\": %" PRIu64
            ", \"losses\": [",
            identical() ? "true" : "false", kept, slowest_recovery(), median(&run.blocked_ms),
            median(&run.protected_ms), sum);
    for (size_t i = 0; i < args.losses; i++) {
        const struct loss *loss = &args.loss[i];
        const struct recovery *r = after(loss);

        fprintf(file,
                "%s{\"killed_at\": %" PRId64 ", \"newest_protected_before\": %" PRId64
                ", \"resumed_step\": %" PRId64 ", \"pulled_bytes\": %" PRIu64
                ", \"where\": \"%s\", \"node\": %u}",
                i ? ", " : "", run.launch[loss->launch].last_step, protected_before(loss),
                r->scratch ? 0 : r->step, pulled(r), loss->where, loss->node);
    }
    fprintf(file, "], \"weights_sha256\": [\"%s\", \"%s\"], \"step_ms_median\": %.2f}\n",
            control.weights, run.weights, median(&run.step_ms));
    return fclose(file);
}

/* WHERE:LAUNCH:NODE */
static int parse_loss(const char *arg, struct loss *out)
{
    size_t len = strcspn(arg, ":");
    char *end;

    if (len >= sizeof(out->where) || !arg[len])
        return -1;
    memcpy(out->where, arg, len);
    out->launch = (uint32_t)strtoul(arg + len + 1, &end, 10);
    if (*end != ':' || out->launch >= LOSSES)
        return -1;
    out->node = (uint32_t)strtoul(end + 1, &end, 10);
    return *end || out->node >= NODES ? -1 : 0;
}

static int parse(int argc, char **argv)
{
    static const struct option options[] = { { "control", 1, NULL, 'c' }, { "run", 1, NULL, 'r' },
        { "json", 1, NULL, 'j' }, { "how", 1, NULL, 'w' }, { "nodes", 1, NULL, 'n' },
        { "ranks", 1, NULL, 'm' }, { "loss", 1, NULL, 'l' }, { NULL, 0, NULL, 0 } };
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'c':
            args.control = optarg;
            break;
        case 'r':
            args.run = optarg;
            break;
        case 'j':
            args.json = optarg;
            break;
        case 'w':
            args.how = optarg;
            break;
        case 'n':
            args.nodes = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'm':
            args.ranks = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'l':
            if (args.losses == LOSSES || parse_loss(optarg, &args.loss[args.losses]) != 0)
                return -1;
            args.losses++;
            break;
        default:
            return -1;
        }
    }
    return args.control && args.run && args.how && args.nodes && args.nodes <= NODES &&
                           args.ranks && optind == argc
                   ? 0
                   : -1;
}

int main(int argc, char **argv)
{
    size_t kept = 0;

    if (parse(argc, argv) != 0) {
        fprintf(stderr, "usage: hearth_train_report --control DIR --run DIR --how TEXT --nodes N "
                        "--ranks M [--json FILE] [--loss WHERE:LAUNCH:NODE]...\n");
        return 2;
    }
    if (read_run(args.control, &control) != 0 || read_run(args.run, &run) != 0)
        return 1;
    for (size_t i = 0; i < args.losses; i++)
        kept += survived(&args.loss[i]);
    say(kept);
    if (args.json && write_json(kept) != 0)
        return 1;
    return identical() && kept == args.losses ? 0 : 1;
}
