/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop, its arguments, and the two points at which it can be asked to stand still so
 * that its machine may be lost there: between saves, and in the middle of one. */
#include "train.h"

#include <getopt.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
    const char *text, *events;
    uint64_t shard_bytes;
    int64_t steps, every;
    uint32_t launch, halt_rank, halt_saves;
    enum halt halt;
    bool no_hearth, drop;
};

static const char help[] =
        "hearth_train: a training job that survives its machines; to be started by mpirun.\n"
        "\n"
        "  --text FILE     what to learn (default /usr/share/common-licenses/GPL-3)\n"
        "  --mib N         this rank's shard (default 64)\n"
        "  --steps N       steps in all (default 150)\n"
        "  --every N       a checkpoint every N steps, when the last one is decided (default 10)\n"
        "  --events DIR    a file of JSON lines per rank there\n"
        "  --launch N      number of this start of the job, for the events (default 0)\n"
        "  --halt WHERE:SAVES:RANK  RANK stands still to be killed when SAVES saves are PROTECTED:\n"
        "                  WHERE is `between` (before the next step) or `middle` (in the next save)\n"
        "  --no-hearth     no checkpoints at all\n"
        "  --drop          free the checkpoints at the end\n"
        "\n"
        "Hearth itself is told by HEARTH_* variables: root, job, bind, transport, key file.\n";

/* WHERE:SAVES:RANK */
static int parse_halt(struct job *job, const char *arg)
{
    const char *saves = strchr(arg, ':'), *rank = saves ? strchr(saves + 1, ':') : NULL;
    char *end;

    if (!rank)
        return -1;
    if (strncmp(arg, "between:", 8) == 0)
        job->halt = HALT_BETWEEN;
    else if (strncmp(arg, "middle:", 7) == 0)
        job->halt = HALT_MIDDLE;
    job->halt_saves = (uint32_t)strtoul(saves + 1, &end, 10);
    if (end != rank || job->halt == HALT_NEVER)
        return -1;
    job->halt_rank = (uint32_t)strtoul(rank + 1, &end, 10);
    return *end ? -1 : 0;
}

static int parse_number(const char *arg, int64_t *out)
{
    char *end;
    long long value = strtoll(arg, &end, 10);

    *out = value;
    return *arg && !*end && value >= 0 && value <= 1000000 ? 0 : -1;
}

static int parse(int argc, char **argv, struct job *job)
{
    static const struct option options[] = { { "text", 1, NULL, 't' }, { "mib", 1, NULL, 'm' },
        { "steps", 1, NULL, 's' }, { "every", 1, NULL, 'e' }, { "events", 1, NULL, 'E' },
        { "launch", 1, NULL, 'l' }, { "halt", 1, NULL, 'h' }, { "no-hearth", 0, NULL, 'n' },
        { "drop", 0, NULL, 'd' }, { "help", 0, NULL, 'H' }, { NULL, 0, NULL, 0 } };
    int64_t number = 0;
    int c, bad = 0;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1 && !bad) {
        switch (c) {
        case 't':
            job->text = optarg;
            break;
        case 'E':
            job->events = optarg;
            break;
        case 'n':
            job->no_hearth = true;
            break;
        case 'd':
            job->drop = true;
            break;
        case 'h':
            bad = parse_halt(job, optarg);
            break;
        case 'm':
            bad = parse_number(optarg, &number);
            job->shard_bytes = (uint64_t)number << 20;
            break;
        case 's':
            bad = parse_number(optarg, &job->steps);
            break;
        case 'e':
            bad = parse_number(optarg, &job->every);
            break;
        case 'l':
            bad = parse_number(optarg, &number);
            job->launch = (uint32_t)number;
            break;
        case 'H':
            fputs(help, stdout);
            exit(0);
        default:
            bad = 1;
        }
    }
    if (!bad && optind == argc && job->shard_bytes && job->every && job->steps)
        return 0;
    fprintf(stderr, "hearth_train: wrong arguments; see hearth_train --help\n");
    return -1;
}

/* One step for all; what everybody said is in notices[world]. */
static void train_step(struct model *model, const struct text *text, struct batch *batch,
        struct notice *mine, struct notice *notices)
{
    double started = now_ms(), loss = 0;
    uint64_t bits;

    model_batch(model, text, batch);
    exchange_rows(model, batch);
    mine->loss = model_gradients(model, batch);
    exchange_gradients(model, batch);
    exchange_dense(batch->dense, mine, notices);
    model_update_dense(model, batch->dense);
    model->step++;
    for (uint32_t r = 0; r < model->world; r++)
        loss += notices[r].loss;
    loss /= (double)BATCH * model->world;
    memcpy(&bits, &loss, sizeof(bits));
    if (model->rank == 0)
        event("step", "\"step\":%lld,\"loss\":%.6f,\"bits\":\"%016llx\",\"ms\":%.2f",
                (long long)model->step, loss, (unsigned long long)bits, now_ms() - started);
}

/* All ranks come to the same answer: it depends on what all said in the same step. */
static bool all_settled(const struct notice *notices, uint32_t world, uint32_t *out_saves)
{
    bool settled = true;

    *out_saves = UINT32_MAX;
    for (uint32_t r = 0; r < world; r++) {
        settled = settled && notices[r].settled;
        *out_saves = notices[r].protected < *out_saves ? notices[r].protected : *out_saves;
    }
    return settled;
}

/* After a step: save when it is time and the last save is decided, and stand still where asked. */
static int after_step(const struct job *job, struct ckpt *ckpt, struct model *model,
        const struct notice *notices, int64_t *saved)
{
    uint32_t saves;
    bool settled = all_settled(notices, model->world, &saves), here;

    here = settled && saves >= job->halt_saves && model->rank == job->halt_rank;
    if (job->halt == HALT_BETWEEN && here)
        halt("between", model->step);
    if (!settled || model->step - *saved < job->every || model->step == job->steps)
        return 0;
    *saved = model->step;
    return ckpt_save(ckpt, job->halt == HALT_MIDDLE && here);
}

static int train(const struct job *job, struct ckpt *ckpt, struct model *model,
        const struct text *text, struct batch *batch, struct notice *notices)
{
    int64_t saved = model->step;

    while (model->step < job->steps) {
        struct notice mine = { .settled = !ckpt || ckpt_settled(ckpt),
            .protected = ckpt ? ckpt_protected(ckpt) : 0 };

        train_step(model, text, batch, &mine, notices);
        if (ckpt && after_step(job, ckpt, model, notices, &saved) != 0)
            return -1;
    }
    return 0;
}

/* One digest over everybody's, in rank order. */
static void finish(const struct model *model)
{
    unsigned char mine[32], all[1024][32];
    char hex[65];

    model_sha256(model, mine);
    exchange_all(mine, sizeof(mine), all);
    sha256(all, model->world * sizeof(mine), mine);
    for (size_t i = 0; i < sizeof(mine); i++)
        snprintf(hex + 2 * i, 3, "%02x", mine[i]);
    if (model->rank == 0)
        event("done", "\"step\":%lld,\"weights\":\"%s\"", (long long)model->step, hex);
}

static int run(const struct job *job, uint32_t rank, uint32_t world)
{
    static struct batch batch;
    static struct model model;
    static struct notice notices[1024];
    struct text text;
    struct ckpt *ckpt = NULL;
    int rc;

    if (text_read(job->text, &text) != 0 ||
            (job->events && event_open(job->events, job->launch, rank) != 0) ||
            model_init(&model, rank, world, job->shard_bytes) != 0 || exchange_open(world) != 0)
        return -1;
    event("start", "\"shard_bytes\":%llu", (unsigned long long)model_bytes(&model));
    rc = job->no_hearth ? 0 : ckpt_open(&model, &ckpt);
    if (rc == 0 && ckpt)
        rc = ckpt_recover(ckpt);
    if (rc == 0)
        rc = train(job, ckpt, &model, &text, &batch, notices);
    if (rc == 0)
        finish(&model);
    ckpt_close(ckpt, job->drop);
    exchange_close();
    model_fini(&model);
    free(text.bytes);
    return rc;
}

int main(int argc, char **argv)
{
    struct job job = { .text = "/usr/share/common-licenses/GPL-3",
        .shard_bytes = 64u << 20,
        .steps = 150,
        .every = 10 };
    int rank, world, provided;

    if (parse(argc, argv, &job) != 0)
        return 2;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    if (world > 1024) {
        fprintf(stderr, "hearth_train: at most 1024 ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (run(&job, (uint32_t)rank, (uint32_t)world) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return 0;
}
