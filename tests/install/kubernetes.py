# SPDX-License-Identifier: Apache-2.0
"""The manifests of deploy/kubernetes: kubernetes.py [--no-run] BIN FILE...

Built-in kinds are checked against the schemas that kubernetes-validate carries, strictly. JobSet
and PodMonitor are not among them: their fields are checked against FIELDS, which lists what the
manifests use of them, and the Job in a JobSet against the built-in one. Then what no schema has:
references inside a file, Hearth's variables and flags, and which probe may end an engine. Last, the
engine of a manifest runs, and its probes with it. BIN: the folder with hearth and hearthd.

One line each: "ok NAME", "skip NAME: REASON", "FAIL NAME: REASON". Exit status: 1 after a FAIL.
"""
import json
import os
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

# As in the CRDs of JobSet 0.12 and of the Prometheus operator 0.93. {}: any.
FIELDS = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): {
        "apiVersion": str, "kind": str, "metadata": {},
        "spec": {
            "network": {"enableDNSHostnames": bool, "publishNotReadyAddresses": bool},
            "failurePolicy": {"maxRestarts": int,
                              "restartStrategy": {"Recreate", "BlockingRecreate"}},
            "replicatedJobs": [{"name": str, "replicas": int, "template": {}}],
        },
    },
    ("monitoring.coreos.com/v1", "PodMonitor"): {
        "apiVersion": str, "kind": str, "metadata": {},
        "spec": {
            "selector": {"matchLabels": {}},
            "podMetricsEndpoints": [{"port": str, "interval": str, "honorLabels": bool}],
        },
    },
}
# Of a pod, for its variables: schemas accept any text there.
DOWNWARD = {"metadata.name", "metadata.namespace", "spec.nodeName", "status.podIP", "status.hostIP"}
PROPAGATION = {"None", "HostToContainer", "Bidirectional"}
POD_IP = "127.0.0.1"
failed = False


def judge(name, wrong):
    global failed
    failed = failed or bool(wrong)
    for text in wrong:
        print(f"FAIL {name}: {text}")
    if not wrong:
        print(f"ok {name}")


def wrong_fields(value, known, path):
    if known == {}:
        return
    if isinstance(known, (dict, list)) and not isinstance(value, type(known)):
        yield f"{path} is no {type(known).__name__}"
    elif isinstance(known, dict):
        for key, below in value.items():
            if key in known:
                yield from wrong_fields(below, known[key], f"{path}.{key}")
            else:
                yield f"{path}.{key} is no field that is known here"
    elif isinstance(known, list):
        for i, below in enumerate(value):
            yield from wrong_fields(below, known[0], f"{path}[{i}]")
    elif isinstance(known, set):
        if value not in known:
            yield f"{path} is '{value}'"
    elif type(value) is not known:
        yield f"{path} is no {known.__name__}"


def wrong_schema(document):
    try:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as e:
        yield f"{'.'.join(map(str, e.path))}: {e.message[:200]}"


def jobs_of(document):
    """What a JobSet makes, as Jobs."""
    for job in document["spec"]["replicatedJobs"]:
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]},
               "spec": job["template"]["spec"]}


def wrong_kind(document):
    known = FIELDS.get((document["apiVersion"], document["kind"]))
    if not known:
        yield from wrong_schema(document)
        return
    yield from wrong_fields(document, known, document["kind"])
    if document["kind"] == "JobSet":
        for job in jobs_of(document):
            yield from wrong_schema(job)


def pods_of(document):
    if document["kind"] == "JobSet":
        for job in jobs_of(document):
            yield job["spec"]["template"]
    elif document["kind"] in ("Job", "DaemonSet"):
        yield document["spec"]["template"]


def containers_of(pod):
    return pod["spec"].get("initContainers", []) + pod["spec"]["containers"]


def env_of(container):
    return {one["name"]: one for one in container.get("env", [])}


def value_of(container, name, downward="x"):
    """Of a variable, as the kubelet makes it."""
    one = env_of(container).get(name, {})
    text = one.get("value", POD_IP if "podIP" in str(one) else downward if one else "")
    for other in env_of(container):
        if f"$({other})" in text:
            text = text.replace(f"$({other})", value_of(container, other, downward))
    return text


def wrong_pod(pod, known, kind):
    volumes = {one["name"]: one for one in pod["spec"].get("volumes", [])}
    memory = [one for one in volumes.values() if one["name"] == "hearth"]
    for container in containers_of(pod):
        name = container["name"]
        context = {**pod["spec"].get("securityContext", {}), **container.get("securityContext", {})}
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                yield f"{name}: there is no volume {mount['name']}"
            if mount.get("mountPropagation", "None") not in PROPAGATION:
                yield f"{name}: mountPropagation '{mount['mountPropagation']}'"
        for variable, one in env_of(container).items():
            path = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "spec.nodeName")
            if path not in DOWNWARD and not path.startswith(
                    ("metadata.labels['", "metadata.annotations['")):
                yield f"{name}: {variable}: there is no field {path}"
            if variable.startswith("HEARTH_") and variable not in known:
                yield f"{name}: no program reads {variable}"
        for word in container.get("command", []):
            for part in word.split("$(")[1:]:
                if part.split(")")[0] not in env_of(container):
                    yield f"{name}: $({part.split(')')[0]}) is no variable of the container"
        if not context.get("readOnlyRootFilesystem"):
            yield f"{name}: its image may be written"
        if kind != "Job" and not context.get("privileged"):
            if not (context.get("runAsNonRoot") and
                    context.get("allowPrivilegeEscalation") is False and
                    context.get("capabilities") == {"drop": ["ALL"]}):
                yield f"{name}: it has rights that it does not need"
        # An engine that answers has the copies of which others are made, however ill the job is.
        probe = container.get("livenessProbe", {}).get("exec", {}).get("command", [])
        if probe and probe[:3] != ["hearth", "status", "--alive"]:
            yield f"{name}: the liveness probe {probe} ends an engine that answers"
        if probe and "hearthd" not in container["command"]:
            yield f"{name}: this liveness probe ends ranks"
        if value_of(container, "HEARTH_START") == "never":
            if not any("hearthd" in one.get("command", []) for one in containers_of(pod)):
                yield f"{name}: HEARTH_START is never, and no container runs hearthd"
    for one in memory:
        if "emptyDir" in one and one["emptyDir"].get("medium") != "Memory":
            yield "the volume hearth is not in memory"


def wrong_job_set(document):
    """Memory that a restart of the JobSet would delete."""
    for pod in pods_of(document):
        for volume in pod["spec"].get("volumes", []):
            if (volume["name"] == "hearth" and "emptyDir" in volume and
                    "failurePolicy" in document["spec"]):
                yield "failurePolicy deletes all pods, and the memory of this JobSet is theirs"


def wrong_selector(document, pods):
    labels = document["spec"]["selector"]["matchLabels"]
    chosen = [p for p in pods if labels.items() <= p["metadata"].get("labels", {}).items()]
    if not chosen:
        yield f"no pod has the labels {labels}"
    for end in document["spec"].get("podMetricsEndpoints", []):
        for pod in chosen:
            ports = [port["name"] for one in containers_of(pod) for port in one.get("ports", [])]
            if end["port"] not in ports:
                yield f"a chosen pod has no port {end['port']}"


# A pod: the engine of the manifest, its probes, and the liveness probe once more while the engine
# stands still. $1: a scratch folder, $2: the programs, then words of probes and engine up to "--".
RUN = r"""
set -e
scratch=$1 bin=$2; shift 2
words() { list=(); while [ "$1" != -- ]; do list+=("$1"); shift; done; }
ip link set lo up
mkdir -p "$scratch"/memory "$scratch"/secret/..data
mount -t tmpfs -o size=64m,mode=1777 memory "$scratch/memory"
mkdir "$scratch/memory/memory" && chmod 1777 "$scratch/memory/memory"
head -c 32 /dev/urandom >"$scratch/secret/..data/key"
chown 0:65532 "$scratch/secret/..data/key" && chmod 440 "$scratch/secret/..data/key"
as=(setpriv --reuid 65532 --regid 65532 --groups 65532 --no-new-privs --bounding-set=-all
    env -i HEARTH_ROOT="$scratch/memory/memory" PATH="$bin:/usr/bin:/bin")
words "$@"; shift $((${#list[@]} + 1)); startup=("${list[@]}")
words "$@"; shift $((${#list[@]} + 1)); live=("${list[@]}")
words "$@"; shift $((${#list[@]} + 1)); ready=("${list[@]}")
words "$@"; engine=("${list[@]}")
"${as[@]}" true || { echo "skip: user 65532 does not reach $bin"; exit; }
"${as[@]}" "${engine[@]}" >"$scratch/log" 2>&1 &
for ((i = 0; i < 100; i++)); do "${as[@]}" "${startup[@]}" >/dev/null 2>&1 && break; sleep 0.1; done
set +e
"${as[@]}" "${startup[@]}" >/dev/null 2>&1; a=$?
"${as[@]}" "${live[@]}" >/dev/null 2>&1; b=$?
"${as[@]}" "${ready[@]}" >/dev/null 2>&1; c=$?
kill -STOP %1; "${as[@]}" "${live[@]}" >/dev/null 2>&1; d=$?
echo "$a $b $c $d"
[ $a = 0 ] || tail -n 2 "$scratch/log"
kill -KILL %1
"""


def run_engine(pod, bin_folder):
    """What the probes end with: startup, liveness, readiness, and liveness of a stopped engine."""
    engine = next(one for one in containers_of(pod) if "hearthd" in one.get("command", []))
    words = []
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        for which in ("startupProbe", "livenessProbe", "readinessProbe"):
            words += engine[which]["exec"]["command"] + ["--"]
        for word in engine["command"]:
            for name in env_of(engine):
                word = word.replace(f"$({name})", value_of(engine, name))
            words.append(word.replace("/var/lib/hearth", scratch + "/memory")
                         .replace("/etc/hearth", scratch + "/secret"))
        return subprocess.run(
            ["unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child",
             "--mount-proc", "bash", "-c", RUN, "pod", scratch, bin_folder, *words, "--"],
            capture_output=True, text=True, timeout=60, check=False)


def judge_engine(name, pod, bin_folder):
    if os.geteuid() != 0:
        print(f"skip {name}: only root makes a pod's namespaces")
        return
    ran = run_engine(pod, bin_folder)
    said = ran.stdout.strip()
    if said.startswith("skip: "):
        print(f"skip {name}: {said[6:]}")
    else:
        # Running, alive, not ready since no rank has come; a stopped engine is not alive.
        wrong = [f"the probes end with {said} {ran.stderr[-300:]}"]
        judge(name, [] if said == "0 0 1 5" else wrong)


def main():
    runs = "--no-run" not in sys.argv
    bin_folder, *files = [one for one in sys.argv[1:] if one != "--no-run"]
    listed = json.loads(subprocess.run([f"{bin_folder}/hearth", "ls", "--env", "--json"],
                                       check=True, capture_output=True).stdout)
    known = {one["variable"] for one in listed["options"]}
    known |= {one["name"] for one in listed["variables"]}
    documents = {}
    for file in files:
        with open(file, encoding="utf-8") as stream:
            documents[os.path.basename(file)] = list(yaml.safe_load_all(stream))
    pods = [pod for all_of in documents.values() for one in all_of for pod in pods_of(one)]
    for file, all_of in documents.items():
        for one in all_of:
            name = f"kubernetes.{file}.{one['kind']}.{one['metadata']['name']}"
            wrong = list(wrong_kind(one))
            if not wrong:
                wrong += [text for pod in pods_of(one)
                          for text in wrong_pod(pod, known, one["kind"])]
                wrong += wrong_job_set(one) if one["kind"] == "JobSet" else []
                wrong += (wrong_selector(one, pods)
                          if one["kind"] in ("PodMonitor", "PodDisruptionBudget") else [])
            judge(name, wrong)
            for pod in pods_of(one):
                if runs and any("hearthd" in c.get("command", []) for c in containers_of(pod)):
                    judge_engine(f"{name}.probes", pod, bin_folder)
    sys.exit(failed)


if __name__ == "__main__":
    main()
