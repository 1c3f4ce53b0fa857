import type { FailedRow, Row, SuiteOptions, Verdict } from "./suite.js";

/** From the page to its worker. */
export type Request = { type: "run" } & SuiteOptions;

/** From the worker to the page. */
export type Report =
  | { type: "progress"; done: number; total: number; doing: string }
  | { type: "row"; row: Row }
  | { type: "failed"; row: FailedRow }
  | { type: "done"; verdict: Verdict }
  | { type: "unavailable"; message: string };
