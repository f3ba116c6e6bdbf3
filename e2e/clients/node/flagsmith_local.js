// Reads flags through Flagsmith's SDK for Node in local evaluation: the SDK fetches the document from the sidecar, and
// evaluates in this process.
const { Flagsmith } = require('flagsmith-nodejs');
const { answer, mapped } = require('./plan.js');

const pairs = (flags) => Object.fromEntries(flags.allFlags().map((flag) => [flag.featureName, [flag.enabled, flag.value]]));

answer(async (plan) => {
  const flagsmith = new Flagsmith({
    environmentKey: plan.key,
    apiUrl: process.env.FLAGSMITH_API_URL,
    enableLocalEvaluation: true,
  });
  const identity = async (subject) => pairs(await flagsmith.getIdentityFlags(subject.identifier, subject.traits ?? {}));
  const answers = {
    environment: pairs(await flagsmith.getEnvironmentFlags()),
    identities: await mapped(plan.subjects, identity),
    // This SDK refuses an empty identifier.
    anonymous: null,
  };
  await flagsmith.close();
  return answers;
});
