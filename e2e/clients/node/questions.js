// A question to one of OpenFeature's SDKs, and what came of it.
const METHODS = {
  boolean: 'getBooleanDetails',
  string: 'getStringDetails',
  integer: 'getNumberDetails',
  float: 'getNumberDetails',
  object: 'getObjectDetails',
};

/** `evaluate` calls a client's method for a question. */
exports.asker = (evaluate) => async (client, question) => {
  const details = await evaluate(client, METHODS[question.type], question);
  const { value, reason, variant, errorCode } = details;
  return errorCode ? { value, reason, error: errorCode } : { value, reason, variant };
};
