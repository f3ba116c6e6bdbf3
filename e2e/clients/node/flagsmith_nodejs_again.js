// Reads flags through Flagsmith's SDK for Node, and again for each further line of input, with the same client and its
// connections. The client does not retry.
const { Flagsmith } = require('flagsmith-nodejs');
const { again } = require('./plan.js');

again((plan) => {
  const flagsmith = new Flagsmith({ environmentKey: plan.key, apiUrl: process.env.FLAGSMITH_API_URL, retries: 0 });
  const { identifier } = plan.subjects['nobody special'];
  return async () => {
    const flag = (await flagsmith.getIdentityFlags(identifier)).getFlag('max_items');
    return { flag: [flag.enabled, flag.value] };
  };
});
