/** Loops over values that may never come. */

/**
 * Makes `return` end a loop that waits for its next value. A generator handles it only after its present step, which may
 * never end. `stop` has that step end.
 */
export function endable<T>(
  loop: AsyncGenerator<T, void, undefined>,
  stop: () => void,
): AsyncGenerator<T, void, undefined> {
  const { return: end } = loop;
  loop.return = (value) => {
    stop();
    return end.call(loop, value);
  };
  return loop;
}
