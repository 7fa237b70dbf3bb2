#!/usr/bin/env python3
"""Makes tests/data_files/schemas/kubernetes.json from the published schemas of Kubernetes and of the custom kinds.

usage: tools/distil_schemas.py FOLDER > tests/data_files/schemas/kubernetes.json

FOLDER holds crd-jaxjob.yaml, crd-jobset.yaml, crd-trainjob.yaml (the CustomResourceDefinitions of Kubeflow's training
operator, of JobSet and of Kubeflow Trainer), kubernetes-batch-v1.openapi.json and kubernetes-core-v1.openapi.json (as an
API server serves them at /openapi/v3/apis/batch/v1 and /openapi/v3/api/v1). The result has what a manifest can be checked
against: fields, types, enums, limits and required fields. Descriptions and CEL rules are dropped. Schemas that occur
several times become definitions, one per line.
"""

import collections
import hashlib
import json
import sys

import yaml

KEPT = ("enum", "required", "minimum", "maximum", "minLength", "maxLength", "pattern", "maxItems", "minItems")
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def distil(schema, definitions):
    """Returns a schema reduced to KEPT and its fields, with references resolved and fields sorted."""
    if "$ref" in schema:
        return distil(definitions[schema["$ref"].split("/")[-1]], definitions)
    if len(schema.get("allOf", [])) == 1:
        return distil(schema["allOf"][0], definitions)
    out = {key: schema[key] for key in KEPT if key in schema}
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string" or "oneOf" in schema:
        out["type"] = "scalar"  # a number or a string: a quantity, a port
    elif "type" in schema:
        out["type"] = schema["type"]
    if "properties" in schema:
        out["properties"] = {key: distil(value, definitions) for key, value in sorted(schema["properties"].items())}
    if isinstance(schema.get("additionalProperties"), dict):
        out["values"] = distil(schema["additionalProperties"], definitions)
    elif out.get("type") == "object" and "properties" not in schema:
        out["open"] = True  # anything
    if "items" in schema:
        out["items"] = distil(schema["items"], definitions)
    return out


def of_api(path, kinds):
    """Returns the schemas of these kinds from an OpenAPI document, and the schema of metadata."""
    with open(path, encoding="utf-8") as file:
        definitions = json.load(file)["components"]["schemas"]
    return {kind: distil(definitions[name], definitions) for kind, name in kinds.items()}, distil(definitions[META], definitions)


def of_crd(path):
    with open(path, encoding="utf-8") as file:
        documents = [each for each in yaml.safe_load_all(file) if each]
    spec = documents[0]["spec"]
    version = next(each for each in spec["versions"] if each["storage"])
    kind = f"{spec['group']}/{version['name']} {spec['names']['kind']}"
    return {kind: distil(version["schema"]["openAPIV3Schema"], {})}


def share(kinds):
    """Moves object schemas that occur several times into definitions."""
    counts = collections.Counter()

    def key_of(schema):
        return hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()[:10]

    def count(schema):
        if "properties" in schema:
            key = key_of(schema)
            counts[key] += 1
            if counts[key] > 1:
                return
        for each in children(schema):
            count(each)

    def children(schema):
        yield from schema.get("properties", {}).values()
        for name in ("items", "values"):
            if name in schema:
                yield schema[name]

    definitions = {}

    def replace(schema):
        out = dict(schema)
        if "properties" in out:
            out["properties"] = {key: replace(value) for key, value in out["properties"].items()}
        for name in ("items", "values"):
            if name in out:
                out[name] = replace(out[name])
        if "properties" not in schema or counts[key_of(schema)] < 2:
            return out
        definitions[key_of(schema)] = out
        return {"is": key_of(schema)}

    for schema in kinds.values():
        count(schema)
    return {kind: replace(schema) for kind, schema in kinds.items()}, definitions


def main():
    folder = sys.argv[1]
    kinds, meta = of_api(f"{folder}/kubernetes-batch-v1.openapi.json", {"batch/v1 Job": "io.k8s.api.batch.v1.Job"})
    core, _ = of_api(f"{folder}/kubernetes-core-v1.openapi.json",
                     {"v1 Service": "io.k8s.api.core.v1.Service", "v1 Secret": "io.k8s.api.core.v1.Secret",
                      "v1 Pod": "io.k8s.api.core.v1.Pod", "v1 Event": "io.k8s.api.core.v1.Event"})
    kinds.update(core)
    network, _ = of_api(f"{folder}/kubernetes-networking-v1.openapi.json",
                        {"networking.k8s.io/v1 NetworkPolicy": "io.k8s.api.networking.v1.NetworkPolicy"})
    kinds.update(network)
    for name in ("jaxjob", "jobset", "trainjob"):
        kinds.update(of_crd(f"{folder}/crd-{name}.yaml"))
    for schema in kinds.values():  # a CustomResourceDefinition only declares it as an object
        schema["properties"]["metadata"] = meta
    kinds, definitions = share(kinds)

    def line(name, schema):
        return f'    {json.dumps(name)}: {json.dumps(schema, separators=(",", ":"))}'

    print('{\n  "kinds": {\n' + ",\n".join(line(*each) for each in kinds.items()) + '\n  },\n  "definitions": {')
    print(",\n".join(line(*each) for each in sorted(definitions.items())) + "\n  }\n}")


main()
