/** How changes, and transactions that are followed, are sent to a client: a page at a time. */

import type { FollowedTransaction } from "../../database/changes.js";
import type { RemoteLogRecord } from "./log-pages.js";

/** The call of the worker, whose first argument says what is asked for. */
export const HISTORY = "history";

/** The call that takes a transaction back. It is a write, and no job. */
export const UNDO = "undo";

/** A part of what has changed. */
export interface ChangesPage {
  readonly items: readonly RemoteLogRecord[];
  /** The newest commit when the loop began. Later changes of a key are left to the next loop. */
  readonly until: number;
  /** Whether there is another page. */
  readonly goesOn: boolean;
}

/** Transactions behind a cursor. */
export interface FollowPage {
  /** None if there was none for a while. */
  readonly items: readonly FollowedTransaction[];
  /** Behind which the next page begins. */
  readonly cursor: number;
}
