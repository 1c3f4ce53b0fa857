/** Records of collections, shown as what they are. */

import { toJson } from "../json.js";
import { schemaOf } from "../struct/schema-of.js";
import type { Told } from "./keyspaces.js";
import { oneLine, textOf } from "./text.js";

/** How values are shown. */
export interface Showing {
  /** In a line, for people. */
  line(value: Uint8Array): string;
  /** As part of a JSON document. */
  fields(value: Uint8Array): object;
}

/** The values of a collection: structs and JSON as JSON, all else as bytes. */
export function showing({ value: kind }: Told): Showing | undefined {
  if (kind?.kind === "struct") {
    const schema = schemaOf(kind);
    return inJson((bytes) => toJson(schema, bytes));
  }
  if (kind?.kind === "json") return inJson((bytes) => textOf(bytes) ?? "null");
  return undefined;
}

function inJson(json: (bytes: Uint8Array) => string): Showing {
  return {
    line: (value) => oneLine(new TextEncoder().encode(json(value))),
    fields: (value) => ({ bytes: value.length, value: JSON.parse(json(value)) as unknown }),
  };
}
