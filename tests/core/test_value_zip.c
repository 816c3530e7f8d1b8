/* SPDX-License-Identifier: Apache-2.0 */
/* Zips that torch.save did not write: members that overlap or lie elsewhere, ends that do not
 * fit. */
#include "zipper.h"

#define NOTHING "\x80\x02N."

static struct zipper good(void)
{
    struct zipper z = { 0 };

    member(&z, "x/data.pkl", NOTHING, 4);
    member(&z, "x/byteorder", "little", 6);
    return z;
}

Test(value_zip, a_plain_zip_is_enough)
{
    struct zipper z = good();

    must(open_zip(&z));
}

Test(value_zip, what_torch_did_not_write_is_refused_by_name)
{
    struct zipper z = { 0 };

    refused(open_zip(&z), HEARTH_ECORRUPT, "neither a zip");
    z = (struct zipper){ 0 };
    member(&z, "data.pkl", NOTHING, 4);
    refused(open_zip(&z), HEARTH_ECORRUPT, "no folder");
    z = (struct zipper){ 0 };
    member(&z, "x/other", "", 0);
    refused(open_zip(&z), HEARTH_ECORRUPT, "no data.pkl");
    z = good();
    member(&z, "y/version", "3", 1);
    refused(open_zip(&z), HEARTH_ECORRUPT, "outside of the zip's folder");
    z = good();
    member(&z, "x/constants.pkl", NOTHING, 4);
    refused(open_zip(&z), HEARTH_EUNSUPPORTED, "TorchScript");
    z = (struct zipper){ 0 };
    member(&z, "x/data.pkl", NOTHING, 4);
    member(&z, "x/byteorder", "big", 3);
    refused(open_zip(&z), HEARTH_EUNSUPPORTED, "byte order");
    z = (struct zipper){ 0 };
    member(&z, "x/data.pkl", NOTHING, 4);
    member(&z, "x/byteorder", "littl", 5);
    refused(open_zip(&z), HEARTH_ECORRUPT, "byte order");
}

Test(value_zip, members_do_not_share_bytes)
{
    struct zipper z = good();

    member(&z, "x/data.pkl", NOTHING, 4);
    refused(open_zip(&z), HEARTH_ECORRUPT, "two members of one name");
    z = good();
    member(&z, "x/Data.PKL", NOTHING, 4); /* torch takes one for the other */
    refused(open_zip(&z), HEARTH_ECORRUPT, "two members of one name");
    z = good();
    entry(&z, "x/data.pkl", 0, 4); /* the same bytes twice */
    refused(open_zip(&z), HEARTH_ECORRUPT, "outside, or in another one");
    z = good();
    hth_put32(z.central + 20, 40); /* data.pkl reaches into its neighbour's header */
    hth_put32(z.central + 24, 40);
    refused(open_zip(&z), HEARTH_ECORRUPT, "reaches into what follows");
    z = good();
    entry(&z, "x/quine", 44, 0); /* a header in the middle of data */
    refused(open_zip(&z), HEARTH_ECORRUPT, "");
}

Test(value_zip, entries_that_point_elsewhere)
{
    static const uint32_t far[] = { 30, 90, 8000, 0x7fffffff, 0xffffffff };
    struct zipper z;

    for (size_t i = 0; i < sizeof(far) / sizeof(far[0]); i++) {
        z = good();
        hth_put32(z.central + 42, far[i]);
        must_fail(open_zip(&z), HEARTH_ECORRUPT);
        z = good();
        hth_put32(z.central + 20, far[i]);
        hth_put32(z.central + 24, far[i]);
        must_fail(open_zip(&z), HEARTH_ECORRUPT);
    }
    z = good();
    hth_put32(z.central + 42, 0x40000000); /* both, one behind the other */
    hth_put32(z.central + 46 + 10 + 42, 0x7fffffff);
    must_fail(open_zip(&z), HEARTH_ECORRUPT);
    z = good();
    z.central[24] = 3; /* stored, and shorter than it is stored */
    refused(open_zip(&z), HEARTH_ECORRUPT, "two lengths");
    z = good();
    z.central[46] = 'y';
    refused(open_zip(&z), HEARTH_ECORRUPT, "another name");
    z = good();
    z.central[8] = 1;
    refused(open_zip(&z), HEARTH_ECORRUPT, "encrypted");
    z = good();
    z.central[10] = 8;
    refused(open_zip(&z), HEARTH_ECORRUPT, "compressed");
    z = good();
    z.bytes[8] = 8;
    refused(open_zip(&z), HEARTH_ECORRUPT, "local header");
    for (int i = 14; i < 26; i += 4) {
        z = good();
        z.bytes[i] = 3; /* a checksum or length that the directory does not have */
        refused(open_zip(&z), HEARTH_ECORRUPT, "other lengths");
        z = good();
        hth_put32(z.bytes + i, i == 14 ? 0 : 4);
        must(open_zip(&z));
    }
}

Test(value_zip, a_directory_is_made_of_its_entries)
{
    struct zipper z = good();

    put(z.central, &z.central_len, "abc", 3);
    refused(open_zip(&z), HEARTH_ECORRUPT, "behind the last entry");
    z = good();
    z.members = 1;
    refused(open_zip(&z), HEARTH_ECORRUPT, "behind the last entry");
    z = good();
    z.members = 3;
    must_fail(open_zip(&z), HEARTH_ECORRUPT);
}

Test(value_zip, the_end_must_be_where_it_is)
{
    struct zipper z = good();
    unsigned char *end;
    size_t central = 46 + 10 + 46 + 11;

    finish(&z);
    end = z.bytes + z.len - 22;
    must(open_item(z.bytes, z.len));
    z.bytes[z.len] = 0;
    must_fail(open_item(z.bytes, z.len + 1), HEARTH_ECORRUPT);
    for (unsigned i = 4; i < 22; i++) { /* any number in the end record that is another one */
        end[i] ^= 1;
        must_fail(open_item(z.bytes, z.len), HEARTH_ECORRUPT);
        end[i] ^= 1;
    }
    memmove(end + 3, end, 22); /* three bytes between directory and end */
    must_fail(open_item(z.bytes, z.len + 3), HEARTH_ECORRUPT);
    memmove(end, end + 3, 22);
    /* A central directory that ends in the middle of an entry. */
    for (size_t cut = 1; cut < central; cut++) {
        unsigned char shorter[8192];
        size_t n = z.len - 22 - cut;

        memcpy(shorter, z.bytes, n);
        memcpy(shorter + n, end, 22);
        hth_put32(shorter + n + 12, (uint32_t)(central - cut));
        must_fail(open_item(shorter, n + 22), HEARTH_ECORRUPT);
    }
    must(open_item(z.bytes, z.len));
}
