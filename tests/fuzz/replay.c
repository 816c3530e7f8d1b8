/* SPDX-License-Identifier: Apache-2.0 */
/* Stand-in for libFuzzer: run the target once on each file of the folders named. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    static uint8_t bytes[1 << 20];
    FILE *f = fopen(path, "rb");
    uint8_t *exact; /* heap of the exact size, so that ASan sees a byte too far */
    size_t n;

    if (!f) {
        perror(path);
        return 1;
    }
    n = fread(bytes, 1, sizeof(bytes), f);
    fclose(f);
    exact = malloc(n ? n : 1);
    if (!exact)
        return 1;
    for (size_t k = 0; k < n; k++)
        exact[k] = bytes[k];
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return 0;
}

int main(int argc, char **argv)
{
    unsigned files = 0;

    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        struct dirent *e;
        char path[4096];

        while (dir && (e = readdir(dir))) {
            if (e->d_name[0] == '.')
                continue;
            snprintf(path, sizeof(path), "%s/%s", argv[i], e->d_name);
            if (replay(path))
                return 1;
            files++;
        }
        if (dir)
            closedir(dir);
    }
    printf("%u inputs\n", files);
    return files == 0; /* a corpus that is not there is a failure */
}
