/** What the tests use of libraries that have no types. */

declare module "tape" {
  import type { EventEmitter } from "node:events";

  /** What a suite registers its tests with. */
  export type Test = (name: string, test: (t: unknown) => unknown) => void;

  const tape: {
    createHarness(): Test & {
      createStream(options: { objectMode: true }): EventEmitter;
    };
  };
  export default tape;
}

declare module "abstract-level/test/index.js" {
  import type { AbstractLevel } from "abstract-level";
  import type { Test } from "tape";

  export default function suite(options: {
    test: Test;
    factory: (options?: object) => AbstractLevel<Uint8Array>;
  }): void;
}
