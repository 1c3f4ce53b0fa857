/**
 * The modules that are loaded on first use, by their paths. Only the functions with which programs begin import this;
 * workers that serve a database have the same modules at once (`eager-imports.ts`).
 */

export const LAZY_MODULES: Readonly<Record<string, () => Promise<unknown>>> = {
  "collection/json-lines": () => import("../collection/json-lines.js"),
  "collection/migrate": () => import("../collection/migrate.js"),
  "database/export": () => import("./export.js"),
  "database/import": () => import("./import.js"),
  "database/pack": () => import("./pack.js"),
  "database/verify": () => import("./verify.js"),
  "session/strict-views": () => import("../session/strict-views.js"),
  "storage/bytes": () => import("../storage/bytes.js"),
  "storage/node/file": () => import("../storage/node/file.js"),
};
