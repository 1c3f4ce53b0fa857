/** Builds of an application, several of which may run in different tabs: their names and differences. */

import { keyKindOf } from "../../collection/keys.js";
import { type Declaration, differencesOf } from "../../collection/schema-diff.js";
import { SchemaMismatchError, VersionChangedError } from "../../errors/index.js";
import { fingerprint } from "../../struct/fingerprint.js";
import { codecOf } from "../../struct/value-codecs.js";
import { buildName, PROTOCOL } from "../protocol/messages.js";
import { type CollectionSpecs, specOf } from "./collection-handlers.js";

/** The declarations of collections, by name. */
type Declarations = Readonly<Record<string, Declaration>>;

/** The build of a candidate, which it sends to the others so that the newest becomes the owner. */
export interface Build {
  /** The name, as by `buildName`. */
  readonly build: string;
  readonly schemas: Declarations;
}

/** @throws TypeError for an invalid collection */
export function buildOf(version: number, specs: CollectionSpecs): Build {
  const schemas: Record<string, Declaration> = {};
  const layout: unknown[] = [];
  for (const name of Object.keys(specs).sort()) {
    const { of, key, indexes } = specOf(specs, name);
    const { fingerprint: value, kind } = codecOf(of as unknown as Parameters<typeof codecOf>[0]);
    const declared = { fingerprint: value, value: kind, key: keyKindOf(key).kind };
    // Sent in a message, so it has to be plain data.
    schemas[name] = JSON.parse(JSON.stringify(declared)) as Declaration;
    layout.push([name, value, declared.key, indexes]);
  }
  return { build: buildName(version, fingerprint(JSON.stringify(layout))), schemas };
}

/** The error for a client of another version than the owner's. */
export function versionChanged(name: string, mine: string, theirs: string): VersionChangedError {
  const [own, other] = [mine, theirs].map((build) => build.split(".")[0]);
  const which = own === other ? "a newer varve" : `version ${other} of the application`;
  return new VersionChangedError(
    `The database "${name}" now belongs to ${which}, but this page runs ` +
      `${own === other ? "an older one" : `version ${own}`}. The call was not done. Reload the ` +
      "page.",
  );
}

/** @throws VersionChangedError for the page of another version of varve, if the cache has its file or that of its worker */
export function checkProtocol(name: string, protocol: number | undefined): void {
  if (protocol === undefined || protocol === PROTOCOL) return;
  throw new VersionChangedError(
    `The files of connect("${name}") and of its worker are of two versions of varve, perhaps as one of them is still ` +
      "cached. Nothing was done. Load both of one version, from addresses that name it, and reload the page.",
  );
}

/** The error for a client of the same version with other schemas. */
export function schemasDiffer(
  name: string,
  mine: Build,
  theirs: Build | undefined,
): SchemaMismatchError {
  const lines = theirs === undefined ? [] : linesOf(mine.schemas, theirs.schemas);
  const how = lines.length === 0 ? "their indexes, or their order" : lines.join("; ");
  return new SchemaMismatchError(
    `The tab that has "${name}" open runs another build of the same version, and its ` +
      `collections differ from this page's: ${how}. Nothing was done. Give different builds ` +
      "different versions: serve(name, { version }); until then, close the other tabs.",
  );
}

function linesOf(there: Declarations, here: Declarations): string[] {
  const lines: string[] = [];
  for (const name of new Set([...Object.keys(there), ...Object.keys(here)])) {
    const [owners, own] = [there[name], here[name]];
    if (owners === undefined) lines.push(`"${name}" is missing`);
    else if (own === undefined) lines.push(`"${name}" is unexpected`);
    else lines.push(...differencesOf(owners, own).map((line) => `in "${name}" ${line}`));
  }
  return lines;
}
