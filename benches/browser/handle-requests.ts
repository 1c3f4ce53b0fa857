/** The message handler of every benchmark worker: runs a request, reports its progress, and posts the result. */
export function handleRequests<Request, Result>(
  work: (request: Request, progress: (doing: string) => void) => Promise<Result>,
): void {
  const progress = (doing: string) => self.postMessage({ type: "progress", doing });
  self.onmessage = async ({ data }: MessageEvent<Request>) => {
    try {
      self.postMessage({ type: "result", result: await work(data, progress) });
    } catch (error) {
      const message = error instanceof Error ? (error.stack ?? error.message) : String(error);
      self.postMessage({ type: "error", message });
    }
  };
}
