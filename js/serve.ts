/**
 * varve/serve: `serve` alone, for the file of a worker. Bundled into one file, it starts sooner than one that imports
 * `serve` from "varve", because it has no modules that are loaded on demand.
 */

export type { CollectionSpec, CollectionSpecs } from "./client/worker/collection-handlers.js";
export type { Procedure, Procedures } from "./client/worker/handlers.js";
export { type Served, type ServedPort, type ServeOptions, serve } from "./client/worker/serve.js";
