/**
 * How the modules are loaded that are needed on first use. Only the functions with which programs begin import this;
 * workers that serve a database have the same modules at once (`eager-imports.ts`).
 */

export const loadOnDemand = () => import("./on-demand-everywhere.js");
