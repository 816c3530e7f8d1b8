/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth: looks at checkpoints in memory, with or without an engine, Hearth's own and those of
 * ml-flashpoint. One table of commands; numbers and texts are in the C locale everywhere.
 */
#include "command.h"

#include <hearth/version.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum status run_completion(const struct args *a);

static const struct command commands[] = {
    { "status", run_status, TAKES_JSON | TAKES_ROOT | TAKES_WATCH | TAKES_ALIVE, 0, 1,
            "status [--root DIR] [--json] [--watch [SECONDS]] [--alive] [JOB]",
            "show whether all is well with running jobs, and what is not",
            "  hearth status --root /mnt/hearth           all jobs that run on this node\n"
            "  hearth status --root /mnt/hearth train7    one job, from any of its nodes\n"
            "  hearth status --root /mnt/hearth --watch   again and again\n"
            "  hearth status --root /mnt/hearth --alive train7   for a liveness probe\n\n"
            "The engine of this node judges; a line for each reason, the worst first. Then the\n"
            "newest protected save, copies, nodes that are lost or cannot be reached, what this\n"
            "node has yet to pull, and room. \"not known\" stands for all that the engine does\n"
            "not know. Exit status 0: well; 1: at risk, or not known; 2: broken (as with a\n"
            "wrong command line); 3: no such job, or none that runs.\n" },
    { "nodes", run_nodes, TAKES_JSON | TAKES_ROOT | TAKES_WATCH, 1, 1,
            "nodes [--root DIR] [--json] [--watch [SECONDS]] JOB",
            "list the nodes of a running job, and how they are",
            "  hearth nodes --root /mnt/hearth train7\n\n"
            "The worst first. STATE and SINCE, RANKS, HOLDS (objects of other nodes' ranks that\n"
            "are placed there, in one save) and OWES (copies of this node's undecided saves that\n"
            "it has not reported) are what this node's engine knows. Each node's engine is asked\n"
            "for the rest: ROOM for new slots, FABRIC, VERSION; '-': it has not answered. A wide\n"
            "terminal also has DOMAINS and ADDRESS. Exit status 1: a node is not well.\n" },
    { "saves", run_saves, TAKES_JSON | TAKES_ROOT | TAKES_WATCH, 1, 1,
            "saves [--root DIR] [--json] [--watch [SECONDS]] JOB",
            "list the saves of a running job, kept, under way and past",
            "  hearth saves --root /mnt/hearth train7\n\n"
            "Newest first: those that the job keeps, and the last ones that this node's engine\n"
            "remembers. STATE is as in hearth ls, for a save that is not kept: undecided, failed,\n"
            "or freed (it was protected). TOOK is the time from its begin until it was protected,\n"
            "HERE its bytes on this node. Behind MARKS stands why a save has failed.\n" },
    { "ls", run_ls, TAKES_JSON | TAKES_ROOT | TAKES_ENV | TAKES_WATCH, 0, 1,
            "ls [--root DIR] [--json] [--watch [SECONDS]] [JOB] | ls --env [--json]",
            "list jobs, and the saves of a job",
            "  hearth ls --root /mnt/hearth          all jobs on this node\n"
            "  hearth ls --root /mnt/hearth train7   one job: engine, log, saves\n"
            "  hearth ls --root /mnt/hearth --watch  the same again and again\n"
            "  hearth ls --env                       variables that programs read\n"
            "  hearth ls --env --json                all options, flags and variables\n\n"
            "States of a save: protected (the running engine knows its copies), degraded (fewer\n"
            "copies than asked for), kept (it was protected; no engine runs here that has counted\n"
            "its copies), complete (all ranks wrote it), unfinished, bad (marked so by hearth\n"
            "keep or by bad_after: a recovery passes over it as long as an older save is whole),\n"
            "foreign (not written by Hearth). Behind the directory of a foreign save stands what\n"
            "a recovery has against it, by its own .metadata and markers. AGE is the time since\n"
            "the save became protected. Exit status 1: something could not be read.\n" },
    { "keep", run_keep, TAKES_JSON | TAKES_ROOT, 1, 3,
            "keep [--root DIR] [--json] JOB [pin|unpin|release|bad|good STEP]",
            "list the saves that a running job keeps, and change them",
            "  hearth keep --root /mnt/hearth train7              the list, newest first\n"
            "  hearth keep --root /mnt/hearth train7 pin 4000     stays when newer saves come\n"
            "  hearth keep --root /mnt/hearth train7 release 4000 is freed on every node\n"
            "  hearth keep --root /mnt/hearth train7 bad 4000     a recovery passes over it\n\n"
            "The job's coordinator decides, so an engine must run here and reach it. A pin uses\n"
            "up one of keep; the last place is for new saves. The newest protected save is never\n"
            "released. A bad save is chosen all the same if no older save is whole. With the\n"
            "option bad_after, the coordinator counts the jobs in a row that recovered a save and\n"
            "had no save decided since, the running job too; good sets the count to 0.\n" },
    { "why", run_why, TAKES_JSON | TAKES_ROOT | TAKES_RECOVERY, 1, 2,
            "why [--root DIR] [--json] JOB [STEP] | why [--root DIR] [--json] --recovery JOB",
            "show why a save failed, or where the time of a save or recovery went",
            "  hearth why --root /mnt/hearth train7              the newest save\n"
            "  hearth why --root /mnt/hearth train7 4000         the newest save of step 4000\n"
            "  hearth why --root /mnt/hearth --recovery train7   the newest recovery\n\n"
            "The engine of this node is asked, which asks the coordinator's and that of the\n"
            "slowest node. Each remembers its last 256 saves and 16 recoveries since it started.\n"
            "The second line names the rank, node, pair of nodes or phase that made the save\n"
            "slow. A bar stands for each phase here, beside the median of the saves that were\n"
            "protected before. If the coordinator does not answer, the last line has the reason.\n"
            "Exit status 3: no engine answers, or none knows of such a save or recovery.\n" },
    { "trace", run_trace, TAKES_ROOT | TAKES_SAVE, 1, 1, "trace [--root DIR] --save STEP JOB",
            "write one save over all nodes as trace events, for Perfetto or Chrome",
            "  hearth trace --root /mnt/hearth --save 4000 train7 > save.json\n\n"
            "A process for each node, with its phases. Times are by each node's wall clock;\n"
            "clocks of nodes differ. Exit status 1: a node that is named on standard error has\n"
            "not answered or remembers nothing of the save. 3: no engine knows of that save.\n" },
    { "events", run_events, TAKES_JSON | TAKES_ROOT | TAKES_NODE | TAKES_ALL, 1, 1,
            "events [--root DIR] [--json] [--node NAME|--all] JOB",
            "print the last lines of engines' logs, of level info and above",
            "  hearth events --root /mnt/hearth train7             of this node's engine\n"
            "  hearth events --root /mnt/hearth --node n3 train7   of that node's engine\n"
            "  hearth events --root /mnt/hearth --all train7       of all nodes\n\n"
            "An engine remembers its last 256 lines; of all nodes the last 64 each are shown.\n"
            "Exit status 1: a node that is named on standard error has not answered. 3: no\n"
            "engine answers, or the job has no such node.\n" },
    { "top", run_top, TAKES_ROOT | TAKES_WATCH, 1, 1, "top [--root DIR] [--watch [SECONDS]] JOB",
            "show how a job is, and the last lines of the engine's log, again and again",
            "  hearth top --root /mnt/hearth train7   every 2 s, until Ctrl-C\n" },
    { "plan", run_plan, TAKES_JSON | TAKES_ROOT | TAKES_PLAN, 0, 0,
            "plan [--root DIR] [--json] [--nodes N] [--optimizer NAME] [--parameter-bytes N] "
            "[--copies N] [--keep N] [--objects N] [--common BYTES] [--extra BYTES] [--link GBIT] "
            "[--interval SECONDS] --ranks N --bytes BYTES|--model PARAMETERS",
            "compute the memory and network that a job will need",
            "  hearth plan --ranks 512 --nodes 64 --bytes 10GiB\n"
            "  hearth plan --ranks 512 --nodes 64 --model 70B --link 400 --interval 60\n"
            "  hearth plan --root /mnt/hearth --ranks 512 --nodes 64 --bytes 10GiB\n\n"
            "Of each node: the slots that its engine reserves, the size of the tmpfs, the bytes\n"
            "of a save's copies, and those of a recovery; with --link their seconds, and with\n"
            "--interval how busy the link is. With --root it also says whether this node has the\n"
            "memory now: what is free in the tmpfs, in the cgroup of this shell, and on the\n"
            "machine. Exit status 1: it does not, or the interval is too short for the link.\n" },
    { "what-if", run_what_if, TAKES_JSON | TAKES_ROOT | TAKES_WORST, 1, 1024,
            "what-if [--root DIR] [--json] [--worst N] JOB [NODE|domain=NAME]...",
            "show what a loss of nodes would mean for the saves of a running job",
            "  hearth what-if --root /mnt/hearth train7 n3 n9       if these two are lost\n"
            "  hearth what-if --root /mnt/hearth train7 domain=r1   all nodes of a domain\n"
            "  hearth what-if --root /mnt/hearth train7             no further loss\n"
            "  hearth what-if --root /mnt/hearth --worst 5 train7   the worst pairs\n\n"
            "For each kept save: does it survive, and if not, the objects of which ranks would\n"
            "have no copy. Then the step that a recovery would resume from, the bytes that it\n"
            "would pull, and about how long that takes at the rate of the last recoveries or\n"
            "copies. The engine of this node is asked; while copies are being moved (the map is\n"
            "not settled) the coordinator's, which alone knows which nodes have them. A copy that\n"
            "is not known is not promised. A domain is named as the job's option domains names\n"
            "it. Exit status 0: each kept save survives, 1: one is lost, or that is not known, or\n"
            "no save is kept.\n" },
    { "metrics", run_metrics, TAKES_ROOT, 0, 256, "metrics [--root DIR] [JOB...]",
            "print the metrics of the jobs of this node, for Prometheus",
            "  hearth metrics --root /mnt/hearth          all jobs with an engine\n"
            "  hearth metrics --root /mnt/hearth train7   one job\n\n"
            "Prometheus' text format. hearth_up is 0 where an engine should run and does not\n"
            "answer within 2 s. For the textfile collector of node_exporter, write to a file\n"
            "with another name, and rename it when the command has ended with status 0: the\n"
            "collector may read a file at any time.\n" },
    { "exporter", run_exporter, TAKES_ROOT | TAKES_LISTEN, 0, 0,
            "exporter [--root DIR] [--listen ADDRESS]",
            "serve the metrics of the jobs of this node over HTTP",
            "  hearth exporter --root /mnt/hearth                        127.0.0.1:9742\n"
            "  hearth exporter --root /mnt/hearth --listen 10.0.0.7:9742\n"
            "  hearth exporter --root /mnt/hearth --listen unix:/run/hearth/metrics.sock\n\n"
            "/metrics is what hearth metrics prints, or the same as OpenMetrics where the client\n"
            "accepts that; /healthz answers as long as the exporter runs. It runs in the\n"
            "foreground, with one thread and at most 16 connections, prints where it listens\n"
            "once it does, and ends on SIGTERM. There is no encryption and no password: a process\n"
            "that reaches the address can read names of jobs and nodes, and numbers.\n" },
    { "log", run_log, TAKES_JSON | TAKES_ROOT, 1, 2,
            "log [--root DIR] [--json] JOB [error|warn|info|debug|trace]",
            "show the level of an engine's log and what was lost of it, and change the level",
            "  hearth log --root /mnt/hearth train7         level, file, lines lost\n"
            "  hearth log --root /mnt/hearth train7 trace   each message, too\n"
            "  hearth log --root /mnt/hearth train7 debug   as an engine begins\n\n"
            "A level holds for the engine of this node, until it ends. The system log has\n"
            "warnings and errors, whatever the level is but error.\n"
            "Exit status 1: lines are lost at present. 3: no engine answers.\n" },
    { "upgrade", run_upgrade, TAKES_JSON | TAKES_ROOT, 1, 1, "upgrade [--root DIR] [--json] JOB",
            "replace the engine of a running job by the hearthd that is installed now",
            "  hearth upgrade --root /mnt/hearth train7\n\n"
            "Install the new version in the place of the old one on all nodes, then run this on\n"
            "each node, one after the other. The engine runs the new hearthd for a trial first:\n"
            "one that is older, cannot start here, or lacks a version of a format or protocol\n"
            "that is in use, is refused by name, and nothing has stopped. Then the engine ends\n"
            "between two saves if it can, the new one has its lock and its socket, and the ranks\n"
            "go on; no save fails. Exit status 1: refused. 5: the new one does not serve, and the\n"
            "old one goes on. 3: no engine answers.\n" },
    { "inspect", run_inspect, TAKES_JSON, 1, 1, "inspect OBJECT [--json]",
            "print the items of an object, and check its checksums",
            "Offsets count from byte 4096 of the file, as .metadata counts them. A foreign\n"
            "object has no checksums; its items are those that the .metadata beside it names.\n"
            "Without a .metadata, the bytes behind its tensors are shown as one item.\n" },
    { "cat", run_cat, TAKES_OFFSET, 1, 1, "cat OBJECT --offset N",
            "write the payload of an item to standard output",
            "  hearth cat __0__0_src0.distcp --offset 0 > tensor.raw\n\n"
            "Of an object of Hearth's the chunks that hold the item are verified first.\n" },
    { "verify", run_verify, TAKES_JSON | TAKES_ROOT, 1, 1024,
            "verify [--root DIR] [--json] PATH...",
            "check every byte of an object, a save or a job",
            "  hearth verify /mnt/hearth/train7/step-40_ckpt\n"
            "  hearth verify /mnt/hearth/train7      all its saves, manifests and the keep record\n"
            "  hearth verify /mnt/hearth             all its jobs\n\n"
            "Exit status 0: nothing wrong (foreign objects have no checksums and are only\n"
            "read through), 1: something is wrong or cannot be read, and is named, 3: there is\n"
            "nothing to verify.\n" },
    { "header", run_header, 0, 1, 3, "header encode DTYPE SHAPE | header decode HEX|-",
            "encode and decode the header in front of a tensor",
            "  hearth header encode float32 2,3      hex of length and pickle\n"
            "  hearth header encode int64 '()'       a scalar\n"
            "  hearth header decode -                hex from standard input\n" },
    { "rm", run_rm, TAKES_ROOT, 1, 1024, "rm [--root DIR] SAVE...",
            "remove saves while no engine runs on their job",
            "SAVE is a directory as hearth ls shows it, or JOB/SAVE beside --root:\n"
            "  hearth rm /mnt/hearth/train7/step-40_ckpt\n" },
    { "clean", run_clean, TAKES_ROOT, 1, 1, "clean [--root DIR] JOB",
            "remove a job while no engine runs on it",
            "For the epilog of a batch system: removes all that Hearth made of the job here.\n" },
    { "key", run_key, 0, 2, 2, "key new|add|rotate|drop|ls FILE",
            "make a job's key file, and change the key of a running job",
            "  hearth key new job.key      a new file, mode 0600, with one random key\n"
            "  hearth key add job.key      a second key, which is accepted from other nodes\n"
            "  hearth key rotate job.key   the second key dials and proves, the first is accepted\n"
            "  hearth key drop job.key     removes the key that is only accepted\n"
            "  hearth key ls job.key       ids of its keys\n\n"
            "Engines look at their key file every 2 s, and read it 2 s later. After each of add,\n"
            "rotate and drop, give the file to all nodes, and wait for key-changed in the logs of\n"
            "their engines. Saves continue meanwhile. The file is replaced whole; new never\n"
            "overwrites one. No key is ever printed: an id stands for it.\n" },
    { "doctor", run_doctor, TAKES_JSON | TAKES_ROOT | TAKES_PAIRS, 0, 1,
            "doctor [--root DIR] [--json] [JOB|net] | doctor --pairs [--root DIR] [--json] JOB",
            "look at this node: memory, limits, network, jobs, and what to do",
            "  hearth doctor --root /mnt/hearth             this node and all its jobs\n"
            "  hearth doctor --root /mnt/hearth train7      the node with this job alone\n"
            "  hearth doctor net --root /mnt/hearth         networks, as an engine takes them\n"
            "  hearth doctor --root /mnt/hearth --pairs train7   how fast each peer is\n\n"
            "Run it as the job's user, with its environment and limits. The worst stands\n"
            "first: broken (an engine does not start, or saves fail), at risk, not known (it\n"
            "cannot be seen from here), ok. Nothing is changed. Exit status 1: something is\n"
            "broken or at risk.\n\n"
            "net shows adapters, interfaces, what libfabric and UCX offer, what an engine\n"
            "takes with the HEARTH_ variables that are set here, and why no better provider\n"
            "is taken. The libraries are loaded in a process of their own, for 10 s each at\n"
            "most. Exit status 1: an engine would not open.\n\n"
            "--pairs asks the engine of this node how fast it has pulled from each peer in\n"
            "its epoch, and sends nothing for it. Exit status 1: a peer has less than half of\n"
            "the median.\n" },
    { "completion", run_completion, 0, 1, 1, "completion bash|zsh",
            "print the script with which a shell completes hearth",
            "  source <(hearth completion bash)      in this shell\n\n"
            "An installed Hearth has both scripts in the folders that shells look in.\n" },
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static enum status run_completion(const struct args *a)
{
    return completion_print(a->value[0], commands, COMMANDS);
}

static int command_list(FILE *to)
{
    fputs("hearth: looks at checkpoints that are kept in memory, on this node.\n\n"
          "usage: hearth COMMAND [options]\n\n",
            to);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-11s %s\n", commands[i].name, commands[i].what);
    fputs("\nhearth COMMAND --help says more; hearth --version says the version.\n"
          "HEARTH_ROOT is the default of --root. Only rm, clean, keep, log, upgrade and key\n"
          "change anything.\n\n"
          "exit status: 0 done, 1 looked and found something wrong, 2 wrong command line,\n"
          "3 not found, 4 an engine runs on the job, 5 the system refused; of hearth status:\n"
          "0 well, 1 at risk, 2 broken\n",
            to);
    return STATUS_OK;
}

static int command_help(const struct command *c)
{
    printf("hearth %s: %s\n\nusage: hearth %s\n\n%s\n", c->name, c->what, c->usage, c->help);
    arguments_help(c);
    return STATUS_OK;
}

/* A foreign file may shrink while it is read; ours never do. */
static void command_on_bus_error(int sig)
{
    static const char text[] = "hearth: the file shrank while it was read\n";
    ssize_t n = write(STDERR_FILENO, text, sizeof(text) - 1);

    (void)sig, (void)n;
    _exit(STATUS_WRONG);
}

static int command_run(const struct command *c, int argc, char **argv)
{
    struct args a = { .root = getenv("HEARTH_ROOT") };
    int wants_help = 0;
    enum status status;

    if (a.root && !a.root[0])
        a.root = NULL;
    status = arguments_read(c, argc, argv, &a, &wants_help);
    if (status)
        return (int)status;
    return wants_help ? command_help(c) : (int)watch(c->run, &a);
}

static const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (!strcmp(name, commands[i].name))
            return &commands[i];
    return NULL;
}

static int command_unknown(const char *name)
{
    struct nearest near = { .word = name };

    for (size_t i = 0; i < COMMANDS; i++)
        nearest_try(&near, commands[i].name);
    if (near.found)
        return (int)complain_usage(
                "there is no command '%.64s'; did you mean '%s'?", name, near.found);
    return (int)complain_usage("there is no command '%.64s': see hearth --help", name);
}

static int command_dispatch(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    const struct command *c;

    if (argc < 2) {
        command_list(stderr);
        return STATUS_USAGE;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || (!strcmp(name, "help") && argc == 2))
        return command_list(stdout);
    if (!strcmp(name, "--version"))
        return puts("hearth " HEARTH_VERSION) < 0 ? STATUS_SYSTEM : STATUS_OK;
    if (!strcmp(name, "help"))
        return (c = command_find(argv[2])) ? command_help(c) : command_unknown(argv[2]);
    c = command_find(name);
    return c ? command_run(c, argc - 1, argv + 1) : command_unknown(name);
}

int main(int argc, char **argv)
{
    int status;

    signal(SIGBUS, command_on_bus_error);
    status = command_dispatch(argc, argv);
    if (fflush(stdout) || ferror(stdout)) {
        fputs("hearth: the output cannot be written\n", stderr);
        return STATUS_SYSTEM;
    }
    return status;
}
