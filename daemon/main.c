/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearthd: an engine in a process of its own. What belongs to a process is set here, and nothing
 * of it in the engine, which also runs inside others.
 */
#include "confine.h"
#include "last_words.h"
#include "successor.h"

#include "core/base/auth.h"
#include "core/base/full.h"
#include "core/base/network.h"
#include "core/base/open.h"
#include "core/local/ends.h"
#include "engine/driver/config.h"
#include "engine/driver/driver.h"
#include "engine/state/build.h"
#include "transport/transport.h"
#include <hearth/version.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

/* The launcher may have pinned the rank that started us, and our threads serve all of the node. The
 * kernel itself removes CPUs that it does not allow (a smaller cpuset). */
static void daemon_all_cpus(void)
{
    unsigned char mask[1024]; /* 8192 CPUs */

    memset(mask, 0xff, sizeof(mask));
    sched_setaffinity(0, sizeof(mask), (cpu_set_t *)(void *)mask);
}

static void daemon_limits(void)
{
    struct rlimit none = { 0, 0 }, files;

    umask(077); /* a trainer's umask may take the engine's own rights to what it makes */
    prctl(PR_SET_DUMPABLE, 0); /* other processes must not read checkpoints and the key */
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); /* a program that it runs gets no further rights */
    setrlimit(RLIMIT_CORE, &none);
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static int daemon_check_files(struct hearth_error *err)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur >= HTH_FILES_LEAST)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EINVAL, EMFILE,
            "this engine may open %llu files, and needs at least %d, and more for each rank and "
            "peer: raise the limit of open files (ulimit -n)",
            (unsigned long long)files.rlim_cur, HTH_FILES_LEAST);
}

/* Descriptors 0 to 2 are open, so that no file of the store becomes standard error. */
static void daemon_standard_files(void)
{
    int fd;

    do
        fd = hth_open_kernel("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO && !fcntl(fd, F_SETFD, 0));
    if (fd > STDERR_FILENO)
        close(fd);
}

/* A descriptor that becomes readable with a signal to end. */
static int daemon_end_signals(void)
{
    sigset_t ends;

    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_SETMASK, &ends, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit of the shell or batch system is an error with a sentence */
    signal(SIGHUP, SIG_IGN);  /* our session has ended: an engine outlives it */
    return signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Transport libraries install handlers that print and hang; a crash should be a crash. */
static void daemon_no_handlers(void)
{
    for (int sig = 1; sig < NSIG; sig++) {
        struct sigaction old;

        if (sig == SIGPIPE || sig == SIGHUP || sigaction(sig, NULL, &old))
            continue;
        if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN)
            signal(sig, SIG_DFL);
    }
}

/* `starter`: standard error as it was at the start. A rank reads the status there, too. */
static enum hth_end daemon_complain(const struct hth_config *config, int starter,
        enum hth_end status, const struct hearth_error *err)
{
    if (config->detach)
        dprintf(starter, HTH_END_LINE "%d: %s\n", (int)status, err->text);
    else
        dprintf(starter, "hearthd: %s\n", err->text);
    return status;
}

static enum hth_end daemon_status(int code)
{
    switch (code) {
    case HEARTH_ELOCKED:
        return HTH_END_LOCKED;
    case HEARTH_EINVAL:       /* a root, a key file, an address that does not do */
    case HEARTH_EUNSUPPORTED: /* a library that is missing, a store of another version */
    case HEARTH_ECORRUPT:     /* a store that has to be removed */
        return HTH_END_REFUSED;
    default:
        return HTH_END_FAILED;
    }
}

static int daemon_print_help(void)
{
    char *help = hth_config_help();
    int rc = help && fputs(help, stdout) >= 0 && !fflush(stdout) ? HTH_END_DONE : HTH_END_FAILED;

    free(help);
    return rc;
}

/* In a child that no process here waits for; its pid on standard output, which is the starter's.
 * 0: this is it. There is no other thread yet. */
static int daemon_detach(struct hearth_error *err)
{
    pid_t pid = fork();

    if (pid < 0)
        return hth_fail(err, HEARTH_EIO, errno, "cannot go into the background: fork: %s%s",
                strerrordesc_np(errno), hth_limit_text(errno));
    if (pid > 0)
        _exit(dprintf(STDOUT_FILENO, "%ld\n", (long)pid) > 0 ? HTH_END_DONE : HTH_END_FAILED);
    dup2(STDERR_FILENO, STDOUT_FILENO); /* a starter that reads the pid sees the end of the file */
    return HEARTH_OK;
}

static void daemon_close_given(struct hth_config *config)
{
    if (config->lock_fd > 0)
        close(config->lock_fd);
    if (config->sock_fd > 0)
        close(config->sock_fd);
    config->lock_fd = config->sock_fd = 0;
}

/* Until it ends for good, another program has taken its place, or only another process can go
 * on. */
static int daemon_run(struct hth_config *config, int starter)
{
    struct hearth_error err = { 0 };
    int key_fd = hth_key_fd(config->key_file);
    int stop_fd = daemon_end_signals(), comes_back = 1, confined = 0, hands_over, rc = HEARTH_OK;

    if (key_fd >= 0) /* no child of ours inherits it */
        fcntl(key_fd, F_SETFD, FD_CLOEXEC);
    while (!rc && comes_back && !confined) {
        struct hth_driver *driver = NULL;

        rc = hth_driver_open(config, stop_fd, &driver, &err);
        daemon_close_given(config);
        daemon_no_handlers();
        if (rc)
            return daemon_complain(config, starter, daemon_status(rc), &err);
        successor_serves();
        hth_last_words(hth_driver_records(driver), !config->foreground);
        rc = hth_driver_run(driver, &err);
        hands_over = hth_driver_keep(driver, &config->lock_fd, &config->sock_fd);
        comes_back = hth_driver_comes_back(driver) || hands_over;
        confined = hth_driver_confined(driver) && !hands_over;
        hth_driver_close(driver);
        if (hands_over && successor_take_over(config)) {
            daemon_close_given(config);
            return config->detach ? HTH_END_DONE : successor_await_end(stop_fd);
        }
    }
    if (rc)
        return daemon_complain(config, starter, HTH_END_FAILED, &err);
    return comes_back ? HTH_END_AGAIN : HTH_END_DONE;
}

/* The versions of this build, for the engine that it is to replace, if it can start here. */
static int daemon_trial(const struct hth_config *config, int starter)
{
    struct hearth_error err;
    char text[HTH_BUILD_TEXT];
    struct hth_build build;

    if (strcmp(config->transport, HTH_TRANSPORT_AUTO) != 0 &&
            hth_transport_preload(
                    config->transport, config->module_dir[0] ? config->module_dir : NULL, &err))
        return daemon_complain(config, starter, HTH_END_REFUSED, &err);
    hth_build_this(&build);
    hth_build_print(&build, text);
    return fputs(text, stdout) < 0 || fflush(stdout) ? HTH_END_FAILED : HTH_END_DONE;
}

/* Of an engine that a rank starts, which gives no flags of the operator's. */
static void daemon_variables(struct hth_config *c)
{
    const char *last = getenv("HEARTH_FOREIGN_LAST");

    if (last && *last == '1')
        c->foreign_last = 1;
}

int main(int argc, char **argv)
{
    static struct hth_config config;
    struct hearth_error err = { 0 };
    int starter, rc, is_next;

    daemon_standard_files();
    starter = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    daemon_limits();
    rc = hth_config_parse(&config, argc, (const char *const *)argv, &err);
    if (rc)
        return daemon_complain(&config, starter, HTH_END_REFUSED, &err);
    is_next = successor_is(&config);
    daemon_variables(&config);
    if (config.help)
        return daemon_print_help();
    if (config.version)
        return puts("hearthd " HEARTH_VERSION) < 0 ? HTH_END_FAILED : HTH_END_DONE;
    if (config.trial)
        return daemon_trial(&config, starter);
    if (config.detach && !is_next && daemon_detach(&err))
        return daemon_complain(&config, starter, HTH_END_FAILED, &err);
    if (daemon_check_files(&err))
        return daemon_complain(&config, starter, HTH_END_REFUSED, &err);
    daemon_all_cpus();
    successor_prepare(&config, argc, argv);
    daemon_confine(&config, argc, argv);
    return daemon_run(&config, starter);
}
