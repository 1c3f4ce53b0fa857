/** Properties that languages, frameworks and test libraries read on any object, and that no program means. */
export const PROBED_PROPERTIES =
  /^(then|toJSON|nodeType|tagName|asymmetricMatch|\$\$typeof|(__|@@).*)$/;
