import type { Answer, Command } from "./messages.js";

/** A store that does not answer for so long has failed. */
const TIMEOUT_MS = 120_000;

export class StoppedError extends Error {
  override readonly name = "StoppedError";
}

/** The page's side of a store's worker: one command at a time. */
export class StoreWorker {
  readonly #worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  #pending: { resolve(result: unknown): void; reject(error: Error): void } | undefined;

  constructor() {
    this.#worker.onmessage = ({ data }: MessageEvent<Answer>) => {
      const pending = this.#pending;
      this.#pending = undefined;
      if (data.ok) pending?.resolve(data.result);
      else pending?.reject(new Error(data.error));
    };
    this.#worker.onerror = (event) => {
      this.#pending?.reject(
        new Error(`The worker could not run: ${event.message || "its script did not load"}.`),
      );
      this.#pending = undefined;
    };
  }

  call<T>(command: Command): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const timer = setTimeout(
        () => reject(new Error(`no answer within ${TIMEOUT_MS / 1_000} seconds`)),
        TIMEOUT_MS,
      );
      this.#pending = {
        resolve(result) {
          clearTimeout(timer);
          resolve(result as T);
        },
        reject(error) {
          clearTimeout(timer);
          reject(error);
        },
      };
      this.#worker.postMessage(command);
    });
  }

  /** Ends the worker. A call without an answer fails. */
  end(): void {
    this.#worker.terminate();
    this.#pending?.reject(new StoppedError("the worker was ended"));
    this.#pending = undefined;
  }
}
