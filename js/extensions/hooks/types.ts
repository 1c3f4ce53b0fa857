/** What the hooks of every framework export besides. */

export type {
  GivenKey,
  HookRange,
  KeyOf,
  LiveSource,
  RangeResult,
  StatusSource,
  ValueOf,
  ValueResult,
} from "./store.js";
