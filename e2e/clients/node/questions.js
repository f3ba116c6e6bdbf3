// Evaluates a flag through one of OpenFeature's SDKs, and returns the result.
const METHODS = {
  boolean: 'getBooleanDetails',
  string: 'getStringDetails',
  integer: 'getNumberDetails',
  float: 'getNumberDetails',
  object: 'getObjectDetails',
};

/** Returns a function that evaluates a flag. `evaluate` calls the given method of a client. */
exports.asker = (evaluate) => async (client, question) => {
  const details = await evaluate(client, METHODS[question.type], question);
  const { value, reason, variant, errorCode } = details;
  return errorCode ? { value, reason, error: errorCode } : { value, reason, variant };
};
