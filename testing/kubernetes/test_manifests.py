"""What a cluster would be given: valid, the same from both sources, shut in, and fitting the real server.

Called by `cargo xtask test kubernetes`, from the root of the repository.
"""

import contextlib
import copy
import functools
import http.client
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
RENDER = ROOT / "target/kubernetes-render"
MONOLOCK = TARGET / "debug" / "monolock"
CHART = ROOT / "deploy/helm/monolock"
KUSTOMIZE = ROOT / "deploy/kubernetes"
FULL = CHART / "ci/full-values.yaml"
POD = ROOT / "testing/kubernetes/pod.yaml"

# The oldest that the chart allows, and a recent one.
VERSIONS = ["1.29", "1.37"]

# How long a thing may take that comes at once, on a machine that is busy.
PATIENCE_S = 60

# What is in no schema here, by kind: the fields that these manifests use, as their operators document them.
OTHERS = {
    "cert-manager.io/v1 Certificate": {
        "dnsNames": [str],
        "issuerRef": {"group": str, "kind": str, "name": str},
        "privateKey": {"algorithm": str, "encoding": str, "rotationPolicy": str, "size": int},
        "secretName": str,
        "usages": [str],
    },
    "monitoring.coreos.com/v1 ServiceMonitor": {
        "endpoints": [{"interval": str, "port": str}],
        "jobLabel": str,
        "selector": {"matchLabels": {"*": str}},
    },
    "monitoring.coreos.com/v1 PrometheusRule": {
        "groups": [
            {
                "name": str,
                "rules": [
                    {"alert": str, "annotations": {"*": str}, "expr": str, "for": str, "labels": {"*": str}},
                ],
            }
        ],
    },
}


def run(*arguments, **options):
    """What a program writes to standard output; its words where it fails."""
    done = subprocess.run([str(word) for word in arguments], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{arguments} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def kustomized(folder):
    return list(yaml.safe_load_all(run(RENDER, "kustomize", KUSTOMIZE / folder)))


def charted(values=None, release="monolock"):
    """The chart with these values: a dictionary, or a file."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values if isinstance(values, dict) else {}, file)
        file.flush()
        files = [values] if isinstance(values, pathlib.Path) else [file.name]
        return list(yaml.safe_load_all(run(RENDER, "helm", CHART, release, "default", *files)))


SAME = {
    "base": {},
    "overlays/monitoring": {"monitoring": {"enabled": True}},
    "overlays/tls": {"tls": {"enabled": True}},
    "overlays/token-file": {"tokenFile": {"enabled": True}},
}


@functools.cache
def renderings():
    everything = {folder: kustomized(folder) for folder in SAME}
    for folder, values in SAME.items():
        everything[f"the chart as {folder}"] = charted(values)
    everything["the chart with everything"] = charted(FULL)
    everything["the chart by another name"] = charted(release="nightly")
    secret = {"tls": {"enabled": True, "existingSecret": "ours"}, "networkPolicy": {"enabled": False}}
    everything["the chart with a secret that is there"] = charted(secret)
    return everything


def read(path):
    return pathlib.Path(path).read_text()


def find(resources, kind, name=None):
    found = [it for it in resources if it["kind"] == kind and name in (None, it["metadata"]["name"])]
    if len(found) != 1:
        raise AssertionError(f"{len(found)} {kind}s called {name}")
    return found[0]


def stateful_set(resources):
    return find(resources, "StatefulSet")


def pod(resources):
    return stateful_set(resources)["spec"]["template"]["spec"]


def server(resources):
    return next(container for container in pod(resources)["containers"] if container["name"] == "monolock")


def environment(resources):
    return {variable["name"]: variable.get("value") for variable in server(resources)["env"]}


def seconds(duration):
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([0-9.]+)(ms|s|m|h)", duration))


def check_shape(value, shape, where):
    if isinstance(shape, dict):
        for key, inner in value.items():
            if key not in shape and "*" not in shape:
                raise AssertionError(f"{where}.{key} is unknown")
            check_shape(inner, shape.get(key, shape.get("*")), f"{where}.{key}")
    elif isinstance(shape, list):
        if not isinstance(value, list) or not value:
            raise AssertionError(f"{where} is no list with something in it")
        for item in value:
            check_shape(item, shape[0], where)
    elif not isinstance(value, shape) or value == "":
        raise AssertionError(f"{where} is {value!r}")


def each(test):
    """A test of each rendering, which says of which it fails."""

    @functools.wraps(test)
    def tests(self):
        for name, resources in renderings().items():
            with self.subTest(name):
                test(self, resources)

    return tests


class Everything(unittest.TestCase):
    """What holds for each rendering."""

    @each
    def test_each_resource_fits_the_schema_of_its_kind_and_has_no_field_beyond_it(self, resources):
        for resource in resources:
            kind = f"{resource['apiVersion']} {resource['kind']}"
            if kind in OTHERS:
                self.assertEqual(set(resource), {"apiVersion", "kind", "metadata", "spec"})
                check_shape(resource["spec"], OTHERS[kind], kind)
                continue
            for version in VERSIONS:
                kubernetes_validate.validate(resource, version, strict=True)

    @each
    def test_there_is_one_server_and_no_second_one_before_it_is_gone(self, resources):
        workloads = [it["kind"] for it in resources if "template" in it.get("spec", {})]
        self.assertEqual(workloads, ["StatefulSet"])
        self.assertEqual(stateful_set(resources)["spec"]["replicas"], 1)
        # The default, and neither of the ways out of it.
        self.assertNotIn("podManagementPolicy", stateful_set(resources)["spec"])

    @each
    def test_each_container_is_shut_in(self, resources):
        context = pod(resources)["securityContext"]
        self.assertTrue(context["runAsNonRoot"])
        self.assertEqual((context["runAsUser"], context["runAsGroup"]), (65532, 65532))
        self.assertEqual(context["seccompProfile"], {"type": "RuntimeDefault"})
        self.assertIs(pod(resources)["automountServiceAccountToken"], False)
        self.assertIs(find(resources, "ServiceAccount")["automountServiceAccountToken"], False)
        # The variables of the cluster's links begin as the server's own do.
        self.assertIs(pod(resources)["enableServiceLinks"], False)
        for container in pod(resources)["containers"]:
            self.assertEqual(
                container["securityContext"],
                {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            )
            self.assertIn("memory", container["resources"]["limits"])
            self.assertNotIn("cpu", container["resources"]["limits"])

    @each
    def test_names_ports_labels_and_volumes_fit_together(self, resources):
        template = stateful_set(resources)["spec"]["template"]
        labels = template["metadata"]["labels"]
        ports = {port["name"]: port["containerPort"] for port in server(resources)["ports"]}
        is_of_pod = lambda selector: selector and selector.items() <= labels.items()  # noqa: E731
        self.assertTrue(is_of_pod(stateful_set(resources)["spec"]["selector"]["matchLabels"]))
        services = [it for it in resources if it["kind"] == "Service"]
        self.assertEqual(len(services), 2)
        for service in services:
            self.assertTrue(is_of_pod(service["spec"]["selector"]))
            self.assertLessEqual({port["targetPort"] for port in service["spec"]["ports"]}, set(ports))
        governing = stateful_set(resources)["spec"]["serviceName"]
        self.assertEqual(find(resources, "Service", governing)["spec"]["clusterIP"], "None")
        for resource in resources:
            if resource["kind"] == "PodDisruptionBudget":
                self.assertTrue(is_of_pod(resource["spec"]["selector"]["matchLabels"]))
            if resource["kind"] == "NetworkPolicy":
                self.assertTrue(is_of_pod(resource["spec"]["podSelector"]["matchLabels"]))
                self.assertEqual(resource["spec"]["policyTypes"], ["Ingress", "Egress"])
                self.assertNotIn("egress", resource["spec"])
                for rule in resource["spec"]["ingress"]:
                    self.assertTrue(rule["from"])
                    self.assertLessEqual({port["port"] for port in rule["ports"]}, set(ports))
            if resource["kind"] == "ServiceMonitor":
                wanted = resource["spec"]["selector"]["matchLabels"].items()
                scraped = [it for it in services if wanted <= it["metadata"]["labels"].items()]
                self.assertEqual([it["metadata"]["name"] for it in scraped], [governing])
                self.assertEqual(resource["spec"]["endpoints"][0]["port"], scraped[0]["spec"]["ports"][0]["name"])
                # The alerts are about this job.
                self.assertEqual(scraped[0]["metadata"]["labels"][resource["spec"]["jobLabel"]], "monolock")
        volumes = {volume["name"] for volume in pod(resources).get("volumes", [])}
        claims = stateful_set(resources)["spec"].get("volumeClaimTemplates", [])
        volumes |= {claim["metadata"]["name"] for claim in claims}
        mounts = [mount for it in pod(resources)["containers"] for mount in it.get("volumeMounts", [])]
        self.assertEqual({mount["name"] for mount in mounts}, volumes)
        certificates = [it for it in resources if it["kind"] == "Certificate"]
        for certificate in certificates:
            secrets = [volume["secret"]["secretName"] for volume in pod(resources)["volumes"]]
            self.assertEqual(secrets, [certificate["spec"]["secretName"]])
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            self.assertEqual(server(resources)[probe]["httpGet"]["port"], "ops")

    @each
    def test_the_settings_are_the_servers_and_the_grace_is_as_long_as_the_longest_lease(self, resources):
        known = set(re.findall(r"MONOLOCK_[A-Z_]+", run(MONOLOCK, "serve", "--help")))
        settings = environment(resources)
        self.assertLessEqual(set(settings), known)
        self.assertGreaterEqual(seconds(settings["MONOLOCK_START_GRACE"]), seconds(settings["MONOLOCK_MAX_LEASE"]))
        self.assertEqual(len(settings), len(server(resources)["env"]), "a variable is there twice")
        mounts = [mount["mountPath"] for mount in server(resources).get("volumeMounts", [])]
        files = [value for value in settings.values() if value and value.startswith("/")]
        self.assertEqual({file.rsplit("/", 1)[0] for file in files}, set(mounts))


class Sources(unittest.TestCase):
    """The two sources against each other and against the rest of the repository."""

    def test_the_chart_and_the_base_with_its_overlays_are_the_same(self):
        for folder, values in SAME.items():
            with self.subTest(folder):
                expected = {(it["kind"], it["metadata"]["name"]): plain(it) for it in kustomized(folder)}
                found = {(it["kind"], it["metadata"]["name"]): plain(it) for it in charted(values)}
                self.assertEqual(set(found), set(expected))
                for name, resource in expected.items():
                    self.assertEqual(found[name], resource)

    def test_the_alerts_are_those_of_the_manual(self):
        alerts = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
        self.assertEqual(find(kustomized("overlays/monitoring"), "PrometheusRule")["spec"], alerts)
        self.assertEqual(find(charted(FULL), "PrometheusRule")["spec"], alerts)

    def test_the_pod_that_podman_plays_is_that_of_the_base(self):
        """Where they differ, `python test_manifests.py pod` writes it anew."""
        self.assertEqual(yaml.safe_load(read(POD)), bare_pod())

    def test_the_version_is_the_programs(self):
        version = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        self.assertEqual((chart["version"], chart["appVersion"]), (version, version))
        for folder in SAME:
            self.assertEqual(server(kustomized(folder))["image"], f"ghcr.io/monolock-dev/monolock:{version}")

    def test_the_overlay_that_the_manual_shows_is_one(self):
        page = read(ROOT / "docs/kubernetes.md")
        shown = next(block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "Kustomization" in block)
        with tempfile.TemporaryDirectory() as folder:
            beside = os.path.relpath(KUSTOMIZE / "overlays/monitoring", os.path.realpath(folder))
            (pathlib.Path(folder) / "kustomization.yaml").write_text(shown.replace("../monitoring", beside))
            resources = list(yaml.safe_load_all(run(RENDER, "kustomize", folder)))
        self.assertEqual(environment(resources)["MONOLOCK_MAX_SESSIONS"], "50000")
        self.assertEqual({it["metadata"]["namespace"] for it in resources}, {"locks"})


def plain(resource):
    """Without what only helm says, and with variables in one order."""
    resource = copy.deepcopy(resource)
    resource["metadata"].pop("namespace", None)
    for label in ("app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"):
        resource["metadata"]["labels"].pop(label, None)
    for container in resource.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
        container.get("env", []).sort(key=lambda variable: variable["name"])
    return resource


def bare_pod():
    """The pod of the base by itself, as `podman kube play` takes it."""
    template = copy.deepcopy(stateful_set(kustomized("base"))["spec"]["template"])
    # Accounts and groups of volumes are a cluster's.
    del template["spec"]["serviceAccountName"]
    # Podman would ask by curl, in the container, where there is none. The image has a check of its own.
    del template["spec"]["containers"][0]["livenessProbe"]
    template["metadata"]["name"] = "monolock"
    return {"apiVersion": "v1", "kind": "Pod", **template}


class Chart(unittest.TestCase):
    def test_the_chart_lints_with_default_and_with_full_values(self):
        run(RENDER, "lint", CHART)
        run(RENDER, "lint", CHART, FULL)

    def test_values_that_make_no_sense_are_refused_by_their_names(self):
        for values, name in [
            ({"maxLease": 30}, "maxLease"),
            ({"startGrace": "soon"}, "startGrace"),
            ({"replicas": 2}, "replicas"),
            ({"tls": {"enabled": "yes"}}, "enabled"),
            ({"podDisruptionBudget": {"maxUnavailable": 2}}, "maxUnavailable"),
            ({"extraEnv": [{"name": "MONOLOCK_MAX_LEASE", "value": "1h"}]}, "extraEnv"),
            ({"extraEnv": [{"name": "PATH", "value": "/"}]}, "extraEnv"),
        ]:
            with self.subTest(values), self.assertRaisesRegex(AssertionError, name):
                charted(values)

    def test_every_value_is_explained_and_in_the_schema(self):
        lines = (CHART / "values.yaml").read_text().splitlines()
        names = [line.split(":")[0] for line in lines if re.match(r"[a-zA-Z]+:", line)]
        schema = yaml.safe_load((CHART / "values.schema.json").read_text())
        self.assertEqual(set(schema["properties"]) - {"global"}, set(names))

    def test_what_the_full_values_say_is_there(self):
        resources = charted(FULL)
        self.assertEqual(server(resources)["image"], "registry.example/monolock:0.1.0-custom")
        settings = environment(resources)
        self.assertEqual(settings["MONOLOCK_MAX_LEASE"], "1m")
        self.assertEqual(settings["MONOLOCK_LOG_FORMAT"], "text")
        self.assertEqual(settings["MONOLOCK_TLS_CLIENT_CA"], "/tls/ca.crt")
        self.assertEqual(find(resources, "Service", "locks")["spec"]["ports"][0]["port"], 7000)
        self.assertEqual(find(resources, "Certificate")["spec"]["dnsNames"], ["locks.example"])
        self.assertEqual(find(resources, "PodDisruptionBudget")["spec"]["maxUnavailable"], 1)
        self.assertEqual(pod(resources)["priorityClassName"], "system-cluster-critical")

    def test_a_secret_that_is_there_is_not_made_again(self):
        resources = renderings()["the chart with a secret that is there"]
        self.assertFalse([it for it in resources if it["kind"] in ("Certificate", "NetworkPolicy")])
        self.assertEqual(pod(resources)["volumes"][0]["secret"]["secretName"], "ours")


class Running(unittest.TestCase):
    """What is in the pod, without a cluster around it."""

    def wait_for(self, look, what_is_there=lambda: None):
        """Looks until there is something, and returns it."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := look()):
            self.assertLess(time.monotonic(), deadline, what_is_there())
            time.sleep(0.005)
        return found

    def test_the_real_server_starts_with_the_settings_of_the_pod_and_answers_its_probes(self):
        resources = kustomized("base")
        settings = environment(resources)
        self.assertEqual(settings["MONOLOCK_LISTEN_ADDRESS"], ":7070")
        self.assertEqual(settings["MONOLOCK_OPS_LISTEN_ADDRESS"], ":9090")
        ports = {port["name"]: port["containerPort"] for port in server(resources)["ports"]}
        self.assertEqual(ports, {"monolock": 7070, "ops": 9090})
        anywhere = dict.fromkeys(("MONOLOCK_LISTEN_ADDRESS", "MONOLOCK_OPS_LISTEN_ADDRESS"), "127.0.0.1:0")
        command = [MONOLOCK, *server(resources)["args"]]
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(tempfile.NamedTemporaryFile("w+"))
            child = subprocess.Popen(command, env={**settings, **anywhere}, stderr=log)
            stack.callback(lambda: (child.kill(), child.wait()))

            def find_port():
                self.assertIsNone(child.poll(), read(log.name))
                return re.search(r'"serving the ops endpoints","address":"127\.0\.0\.1:(\d+)', read(log.name))

            port = self.wait_for(find_port, lambda: read(log.name))
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                connection = http.client.HTTPConnection("127.0.0.1", int(port[1]), timeout=PATIENCE_S)
                connection.request("GET", server(resources)[probe]["httpGet"]["path"])
                self.assertEqual(connection.getresponse().status, 200)
                connection.close()

    def test_the_container_beside_the_server_tells_it_of_changed_files_and_of_nothing_else(self):
        beside = next(it for it in pod(kustomized("overlays/tls"))["containers"] if it["name"] == "reload")
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (tls := folder / "tls").mkdir()
            (tls / "tls.crt").write_text("old")
            (tls / "tls.key").write_text("old")
            (programs := folder / "bin").mkdir()
            calls, looks, refuse = folder / "calls", folder / "looks", folder / "refuse"
            for name, text in {
                "pkill": f'echo "$@" >>{calls}; test ! -e {refuse}',
                "sleep": f"echo >>{looks}; exec /bin/sleep 0.02",
            }.items():
                (programs / name).write_text(f"#!/bin/sh\n{text}\n")
                (programs / name).chmod(0o755)
            variables = {"TLS_FOLDER": str(tls), "PATH": f"{programs}:{os.environ['PATH']}"}
            child = subprocess.Popen(
                [*beside["command"], *beside["args"]], env=variables, stdout=subprocess.PIPE, text=True
            )

            def lines(path):
                return path.read_text().splitlines() if path.exists() else []

            def put(name, text):
                """Whole at once, as a cluster puts a secret's files into a pod."""
                (folder / name).write_text(text)
                os.replace(folder / name, tls / name)

            def look_again():
                """Each look at the files that begins after this call is over when the second sleep after it begins."""
                seen = len(lines(looks))
                self.wait_for(lambda: len(lines(looks)) >= seen + 2)

            try:
                look_again()
                self.assertEqual(lines(calls), [])
                put("tls.crt", "new")
                self.wait_for(lambda: lines(calls))
                look_again()
                self.assertEqual(lines(calls), ["-HUP -x monolock"])
                # One that could not be told is told later.
                refuse.touch()
                put("tls.key", "new")
                self.wait_for(lambda: len(lines(calls)) >= 3)
                refuse.unlink()
                look_again()
                told = len(lines(calls))
                look_again()
                self.assertEqual(len(lines(calls)), told)
                child.terminate()
                self.assertEqual(child.wait(PATIENCE_S), 0)
            finally:
                child.kill()
                child.communicate()


if __name__ == "__main__":
    if sys.argv[1:] == ["pod"]:
        note = "# The pod of deploy/kubernetes/base, written by `python test_manifests.py pod`: for `podman kube play`.\n"
        POD.write_text(note + yaml.safe_dump(bare_pod()))
    else:
        unittest.main()
