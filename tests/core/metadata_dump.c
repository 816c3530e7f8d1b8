/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the content of each `.metadata` named, a line of JSON each; or null, and behind it why it
 * was refused. For metadata_differential.py. */
#include "metadata_json.h"

#include <stdio.h>
#include <stdlib.h>

/* The whole file, in memory of its exact size; NULL: cannot be read. */
static unsigned char *whole(const char *path, size_t *out_len)
{
    FILE *f = fopen(path, "rb");
    unsigned char *bytes = NULL;
    long len = -1;

    if (f && !fseek(f, 0, SEEK_END) && (len = ftell(f)) >= 0 && !fseek(f, 0, SEEK_SET))
        bytes = malloc(len ? (size_t)len : 1);
    if (bytes && fread(bytes, 1, (size_t)len, f) != (size_t)len) {
        free(bytes);
        bytes = NULL;
    }
    if (f)
        fclose(f);
    *out_len = (size_t)len;
    return bytes;
}

int main(int argc, char **argv)
{
    struct hearth_metadata *md;
    struct hearth_error err;
    unsigned char *bytes;
    json_t *json;
    size_t len;

    for (int i = 1; i < argc; i++) {
        if (!(bytes = whole(argv[i], &len))) {
            perror(argv[i]);
            return 1;
        }
        if (hearth_metadata_open(bytes, len, &md, &err)) {
            printf("null %s\n", err.text);
        } else {
            json = metadata_json(md);
            json_dumpf(json, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
            printf("\n");
            json_decref(json);
            hearth_metadata_close(md);
        }
        free(bytes);
    }
    return 0;
}
