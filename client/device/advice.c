/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's numbers: the code of ours for each, and what the operator can do. */
#include "client/device/advice.h"

#include "core/base/fail.h"

#define BROKEN                                                                               \
    "an earlier operation has broken this device's context, and all calls for it fail now: " \
    "the process must be started again"
#define HARDWARE "the device reports a hardware error: look at the kernel's log, and replace it"
#define CAPTURE  "a graph is being captured: make this call outside the capture"

static const struct {
    int number, code;
    const char *words;
} numbers[] = {
    { 1, HEARTH_EINVAL, "the driver does not accept these arguments" },
    { 2, HEARTH_ENOMEM, "the driver has no memory for it" },
    { 3, HEARTH_ESTATE,
            "the driver is not initialised in this process; a forked child cannot use "
            "its parent's" },
    { 4, HEARTH_ESTATE, "the process is ending" },
    { 34, HEARTH_EUNSUPPORTED,
            "the library is a toolkit's stub: take its folder out of LD_LIBRARY_PATH" },
    { 46, HEARTH_EBUSY, "the device is busy or not available" },
    { 100, HEARTH_EUNSUPPORTED,
            "no device is visible: a container has to be started with its devices" },
    { 101, HEARTH_EINVAL, "there is no such device" },
    { 201, HEARTH_ESTATE, "no context of this device is current" },
    { 214, HEARTH_EIO, HARDWARE },
    { 220, HEARTH_EIO, HARDWARE },
    { 304, HEARTH_EIO, "a call to the operating system failed" },
    { 400, HEARTH_EINVAL, "a stream or an event is of another context, or is gone" },
    { 700, HEARTH_EIO, BROKEN },
    { 702, HEARTH_EIO, BROKEN },
    { 709, HEARTH_ESTATE, "the context was destroyed" },
    { 710, HEARTH_EIO, BROKEN },
    { 712, HEARTH_EEXIST, "a part of this memory is registered already" },
    { 713, HEARTH_ENOENT, "this memory is not registered" },
    { 714, HEARTH_EIO, BROKEN },
    { 715, HEARTH_EIO, BROKEN },
    { 716, HEARTH_EIO, BROKEN },
    { 717, HEARTH_EIO, BROKEN },
    { 718, HEARTH_EIO, BROKEN },
    { 719, HEARTH_EIO, BROKEN },
    { 800, HEARTH_EIO, "it is not permitted: look at the permissions of the device files" },
    { 801, HEARTH_EUNSUPPORTED, "the device or the driver cannot do it" },
    { 802, HEARTH_EIO, "the system is not ready: is the fabric manager running?" },
    { 803, HEARTH_EUNSUPPORTED,
            "the kernel's module and the library are of different versions: load the module again, "
            "and give containers the host's library" },
    { 804, HEARTH_EUNSUPPORTED,
            "the compatibility package does not support this device: remove it" },
};

int hth_device_fail(struct hearth_error *err, const char *call, int number, const char *name)
{
    const char *words = number >= 900 && number <= 908 ? CAPTURE : NULL;
    int code = words ? HEARTH_EUNSUPPORTED : HEARTH_EIO;

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (numbers[i].number == number) {
            words = numbers[i].words;
            code = numbers[i].code;
        }
    return hth_fail(err, code, number, "%s returned error %d (%s)%s%s", call, number,
            name ? name : "unknown", words ? ": " : "", words ? words : "");
}
