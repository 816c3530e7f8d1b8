/* SPDX-License-Identifier: Apache-2.0 */
/* `hearth rm` and `.hearth/keep`: a save that is removed stands in no job's way. */
#include "saved.h"

#include "core/base/auth.h"
#include "core/format/head.h"
#include "core/local/local.h"
#include "core/local/packet.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

TestSuite(keep_list, .init = make_root, .fini = remove_root);

static struct hth_save_id kept_id(uint64_t step)
{
    struct hth_save_id id = save_id();

    id.step = step;
    return id;
}

/* Step 50, of which nothing lies here, 40, which lies here, and 30, which is pinned. */
static struct hth_keep keep_of(uint64_t serial)
{
    return (struct hth_keep){ .epoch = 6,
        .serial = serial,
        .saves = 3,
        .degraded = 1,
        .pinned = 4,
        .save = { kept_id(50), kept_id(40), kept_id(30) },
        .since_ms = { 5000, 4000, 3000 } };
}

static void put_keep(struct hth_store *s, const struct hth_keep *k)
{
    unsigned char bytes[HTH_KEEP_BYTES];

    hth_keep_encode(k, bytes);
    must(s->ops->record_put(s, "keep", bytes, sizeof(bytes), NULL));
}

/* As the engine writes it before the keep record. */
static void put_head(struct hth_store *s, const struct hth_keep *k)
{
    struct hth_head head = { .epoch = 6, .keep = *k };
    unsigned char bytes[HTH_HEAD_BYTES];

    hth_head_encode(&head, "", 0, bytes);
    must(s->ops->record_put(s, "head", bytes, sizeof(bytes), NULL));
}

static struct hth_keep keep_here(void)
{
    char bytes[2 * HTH_KEEP_BYTES];
    size_t len = slurp(in_job(".hearth/keep"), bytes, sizeof(bytes));
    struct hth_keep k;

    must(hth_keep_decode(&k, bytes, len, NULL));
    return k;
}

Test(keep_list, what_rm_takes_leaves_the_keep_list_and_no_other_save_does)
{
    struct hth_store *s = make_store();
    struct hth_keep keep = keep_of(9);
    struct stat st;

    put_keep(s, &keep);
    s->ops->close(s);
    cr_assert(zero(int, chmod(in_job(".hearth/keep"), 0600)));
    cr_assert(zero(int, hearth("rm", "--root", root, JOB "/step-40_ckpt")), "%s", err_text);
    keep = keep_here();
    cr_assert(eq(u64, keep.epoch, 6));
    cr_assert(eq(u64, keep.serial, 9), "it is still that decision");
    cr_assert(eq(u32, keep.saves, 2));
    cr_assert(eq(u64, keep.save[0].step, 50));
    cr_assert(eq(u64, keep.save[1].step, 30));
    cr_assert(eq(u32, keep.pinned, 2));
    cr_assert(eq(u32, keep.degraded, 1));
    cr_assert(eq(u64, keep.since_ms[1], 3000));
    cr_assert(ne(int, stat(in_job(".hearth/new"), &st), 0));
    cr_assert(zero(int, stat(in_job(".hearth/keep"), &st)));
    cr_assert(eq(u32, st.st_mode & 0777, 0600));
}

Test(keep_list, rm_takes_a_save_of_which_only_the_keep_list_knows)
{
    struct hth_store *s = make_store();
    struct hth_keep keep = keep_of(9);
    char text[HTH_SAVE_TEXT], name[128];
    struct stat st;

    put_keep(s, &keep);
    s->ops->close(s);
    hth_save_text(kept_id(30), text);
    snprintf(name, sizeof(name), JOB "/.hearth/%s", text);
    cr_assert(zero(int, hearth("rm", "--root", root, JOB "/step-50_ckpt")), "%s", err_text);
    cr_assert(eq(int, has(out, "only the keep list"), 1), "%s", out);
    cr_assert(zero(int, hearth("rm", "--root", root, name)), "%s", err_text);
    keep = keep_here();
    cr_assert(eq(u32, keep.saves, 1));
    cr_assert(eq(u64, keep.save[0].step, 40));
    cr_assert(eq(int, hearth("rm", "--root", root, JOB "/step-50_ckpt"), 3), "%s", out);
    cr_assert(eq(int, has(err_text, "there is nothing to remove on this node"), 1), "%s", err_text);
    hth_save_text(kept_id(40), text);
    snprintf(name, sizeof(name), JOB "/.hearth/%s", text);
    cr_assert(eq(int, hearth("rm", "--root", root, name), 3), "it lies elsewhere: %s", out);
    cr_assert(eq(int, has(err_text, "that save lies in "), 1), "%s", err_text);
    cr_assert(eq(int, has(err_text, in_job("step-40_ckpt: give this path")), 1), "%s", err_text);
    cr_assert(eq(u32, keep_here().saves, 1));
    cr_assert(zero(int, stat(in_job("step-40_ckpt/shard"), &st)));
    cr_assert(zero(int, hearth("rm", in_job("step-40_ckpt"))), "%s", err_text);
    cr_assert(zero(u32, keep_here().saves));
    cr_assert(eq(u64, keep_here().epoch, 6), "the next epoch is a later one");
}

Test(keep_list, rm_of_a_copied_directory_leaves_the_save_its_records)
{
    struct hth_store *s = make_store();
    struct hth_keep keep = keep_of(9);
    char command[300], text[HTH_SAVE_TEXT], record[HTH_SAVE_TEXT + 32];
    struct stat st;

    put_keep(s, &keep);
    s->ops->close(s);
    snprintf(command, sizeof(command), "cp -a %s/" JOB "/step-40_ckpt %s/" JOB "/step-41_ckpt",
            root, root);
    cr_assert(zero(int, system(command)));
    cr_assert(zero(int, hearth("rm", in_job("step-41_ckpt"))), "%s", err_text);
    cr_assert(ne(int, stat(in_job("step-41_ckpt"), &st), 0));
    hth_save_text(save_id(), text);
    snprintf(record, sizeof(record), ".hearth/%s.manifest", text);
    cr_assert(zero(int, stat(in_job(record), &st)), "the manifest is the save's");
    snprintf(record, sizeof(record), ".hearth/%s.dir", text);
    cr_assert(zero(int, stat(in_job(record), &st)));
    cr_assert(eq(u32, keep_here().saves, 3));
    cr_assert(zero(int, hearth("verify", in_job("step-40_ckpt"))), "%s", out);
    cr_assert(eq(int, has(out, "as in the manifest"), 1), "%s", out);
    cr_assert(zero(int, hearth("rm", in_job("step-40_ckpt"))), "%s", err_text);
    snprintf(record, sizeof(record), ".hearth/%s.manifest", text);
    cr_assert(ne(int, stat(in_job(record), &st), 0), "and it goes with the last");
    cr_assert(eq(u32, keep_here().saves, 2));
}

/* ml-flashpoint has a whole step of that number, or has removed ours: our save lies in .hearth. */
Test(keep_list, rm_of_a_step_that_is_not_published_says_which_path_to_give)
{
    struct hth_store *s = make_store();
    char text[HTH_SAVE_TEXT], name[128], from[256], words[400];
    struct stat st;

    s->ops->close(s);
    hth_save_text(save_id(), text);
    snprintf(name, sizeof(name), ".hearth/%s", text);
    snprintf(from, sizeof(from), "%s", in_job("step-40_ckpt"));
    cr_assert(zero(int, rename(from, in_job(name))));
    cr_assert(eq(int, hearth("rm", "--root", root, JOB "/step-40_ckpt"), 3), "%s", out);
    snprintf(words, sizeof(words), "that save lies in %s: give this path", in_job(name));
    cr_assert(eq(int, has(err_text, words), 1), "%s", err_text);
    cr_assert(zero(int, hearth("rm", in_job(name))), "%s", err_text);
    cr_assert(ne(int, stat(in_job(name), &st), 0));
}

Test(keep_list, rm_says_nothing_of_links_in_other_containers)
{
    struct hth_store *s = make_store();

    s->ops->close(s);
    cr_assert(zero(int, mkdir(in_job("step-15_ckpt"), 0700)));
    cr_assert(zero(int, symlink("/etc/passwd", in_job("step-15_ckpt/__0__0_src0.distcp"))));
    cr_assert(zero(int, symlink("/etc", in_job("step-16_ckpt"))));
    cr_assert(eq(int, hearth("rm", in_job("step-9_ckpt")), 3), "%s", out);
    cr_assert(zero(int, has(err_text, "step-15") || has(err_text, "step-16")), "%s", err_text);
    cr_assert(zero(int, hearth("rm", in_job("step-40_ckpt"))), "%s", err_text);
    cr_assert(zero(sz, strlen(err_text)), "%s", err_text);
}

/* Runs the command that an error has between its last two backquotes. */
static int run_advice(const char *text)
{
    char words[HEARTH_ERROR_TEXT], *argv[ARGS] = { NULL }, *end, *save = NULL;
    const char *from;
    int n = 0;

    snprintf(words, sizeof(words), "%s", text);
    end = strrchr(words, '`');
    cr_assert(ne(ptr, end, NULL), "%s", text);
    *end = '\0';
    from = strrchr(words, '`');
    cr_assert(ne(ptr, (void *)(uintptr_t)from, NULL), "%s", text);
    for (char *p = strtok_r(words + (from - words) + 1, " ", &save); p;
            p = strtok_r(NULL, " ", &save))
        argv[n++] = p;
    cr_assert(eq(int, n, 5), "%s", text);
    cr_assert(zero(int, strcmp(argv[0], "hearth")));
    return hearth(argv[1], argv[2], argv[3], argv[4]);
}

Test(keep_list, what_the_error_of_a_damaged_store_advises_lets_an_engine_start)
{
    struct hth_store *s = make_store();
    const struct hth_store_tmpfs_opts o = { .root = root, .job = JOB };
    struct hearth_error err;

    s->ops->close(s);
    cr_assert(zero(int, truncate(in_job(".hearth/store"), 40)));
    must_fail(hth_store_tmpfs_open(&o, &s, &err), HEARTH_ECORRUPT);
    cr_assert(zero(int, run_advice(err.text)), "%s: %s", err.text, err_text);
    must(hth_store_tmpfs_open(&o, &s, &err), err);
    s->ops->close(s);
}

/* The engine takes the head's list where that is the later one. */
Test(keep_list, rm_takes_a_save_off_a_list_that_only_the_head_has)
{
    struct hth_store *s = make_store();
    struct hth_keep keep = keep_of(9), before = { .epoch = 6, .serial = 8 };

    put_keep(s, &before);
    put_head(s, &keep);
    s->ops->close(s);
    cr_assert(zero(int, hearth("rm", "--root", root, JOB "/step-40_ckpt")), "%s", err_text);
    keep = keep_here();
    cr_assert(eq(u64, keep.serial, 9));
    cr_assert(eq(u32, keep.saves, 2));
    cr_assert(eq(u64, keep.save[1].step, 30));
}

Test(keep_list, rm_takes_nothing_where_the_keep_record_is_of_a_later_version)
{
    struct hth_store *s = make_store();
    struct hth_keep keep = keep_of(9);
    unsigned char bytes[HTH_KEEP_BYTES];
    struct stat st;

    hth_keep_encode(&keep, bytes);
    bytes[8] = 200;
    hth_digest(bytes + sizeof(bytes) - HTH_DIGEST, bytes, sizeof(bytes) - HTH_DIGEST);
    must(s->ops->record_put(s, "keep", bytes, sizeof(bytes), NULL));
    s->ops->close(s);
    cr_assert(eq(int, hearth("rm", "--root", root, JOB "/step-40_ckpt"), 1), "%s", out);
    cr_assert(zero(int, stat(in_job("step-40_ckpt/shard"), &st)));
    /* One that is damaged is none. */
    cr_assert(zero(int, truncate(in_job(".hearth/keep"), 0)));
    cr_assert(zero(int, hearth("rm", "--root", root, JOB "/step-40_ckpt")), "%s", err_text);
}

/* An engine's answer to STATUS alone, until it is killed. */
static pid_t answer_status(const char *text)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    pid_t pid;

    snprintf(a.sun_path, sizeof(a.sun_path), "%s", in_job(".hearth/sock"));
    cr_assert(zero(int, bind(sock, (const struct sockaddr *)&a, sizeof(a)) || listen(sock, 8)),
            "%s", a.sun_path);
    pid = fork();
    if (!pid)
        alarm(10); /* a test that fails leaves it */
    while (!pid) {
        struct hth_local_head head;
        int c = accept(sock, NULL, NULL), fd = memfd_create("status", MFD_CLOEXEC);

        if (c < 0 || recv(c, &head, sizeof(head), 0) != sizeof(head) ||
                write(fd, text, strlen(text)) < 0 || hth_packet_put(c, &head, sizeof(head), fd))
            _exit(1);
        close(fd);
        close(c);
    }
    close(sock);
    return pid;
}

/* The save has all its copies, and no recovery takes it: a row with both states would be two
 * answers. */
Test(keep_list, a_save_that_is_marked_bad_has_that_one_word_as_its_state)
{
    char text[300], id[HTH_SAVE_TEXT];
    pid_t pid;

    cr_assert(zero(int, mkdir(in_job(""), 0700) | mkdir(in_job(".hearth"), 0700)));
    hth_save_text(kept_id(40), id);
    snprintf(text, sizeof(text),
            "{\"kept\": [{\"save\": \"%s\", \"state\": \"protected\", \"age_s\": 5, \"bad\": true, "
            "\"pinned\": true}]}",
            id);
    pid = answer_status(text);
    cr_assert(zero(int, hearth("keep", "--root", root, JOB)), "%s", err_text);
    cr_assert(eq(int, has(out, "bad") && has(out, "pinned"), 1), "%s", out);
    cr_assert(zero(int, has(out, "protected")), "%s", out);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void must_be_printable(const char *text)
{
    for (const char *at = text; *at; at++)
        cr_assert(eq(int, *at == '\n' || (*at >= ' ' && *at <= '~'), 1), "byte %d at %td of: %s",
                *at, at - text, text);
}

/* A user's process answers in the place of an engine, and root looks. */
Test(keep_list, what_an_engine_answers_cannot_steer_the_terminal)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    char text[600], id[HTH_SAVE_TEXT];
    int fd;
    pid_t pid;

    cr_assert(zero(int, mkdir(in_job(""), 0700) | mkdir(in_job(".hearth"), 0700)));
    fd = open(in_job(".hearth/lock"), O_CREAT | O_RDWR, 0600);
    cr_assert(eq(i64, pwrite(fd, "77                      ", 24, 0), 24));
    cr_assert(zero(int, fcntl(fd, F_OFD_SETLK, &lock)));
    hth_save_text(kept_id(40), id);
    snprintf(text, sizeof(text),
            "{\"epoch\": 1, \"state\": \"\\u001b]0;title\\u0007\\u001b[2J\", \"coordinator\": "
            "\"\\u001b[8mhidden\", \"as_of_ms\": 5, \"kept\": [{\"save\": \"%s\", \"state\": "
            "\"\\u001b[2Jx\", \"age_s\": 9223372036854775807}]}",
            id);
    pid = answer_status(text);
    cr_assert(zero(int, hearth("ls", "--root", root, JOB)), "%s", err_text);
    cr_assert(eq(int, has(out, "hidden"), 1), "%s", out);
    must_be_printable(out);
    must_be_printable(err_text);
    cr_assert(zero(int, hearth("keep", "--root", root, JOB)), "%s", err_text);
    cr_assert(eq(int, has(out, "?[2Jx  106751991167300 d"), 1), "%s", out);
    must_be_printable(out);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(fd);
}
