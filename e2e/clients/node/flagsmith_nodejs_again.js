// Asks by Flagsmith's SDK for Node, and again for each line that comes in, by the same client and its connections. It has
// no second try.
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
