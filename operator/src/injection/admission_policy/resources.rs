//! CEL expressions of the sidecar's resources, equal to [`resources`](super::super::resources).

use super::Variables;
use crate::injection::{
    layout::Layout,
    resources::{CPU_LIMIT, GUARANTEED_CPU, memory_limit},
};

pub(super) fn define(variables: &mut Variables) {
    variables.define(
        "podLevel",
        "['requests', 'limits'].exists(kind, object.spec.?resources[?kind].optMap(amounts, size(amounts) > 0).orValue(false))",
    );
    // The API server sets an absent request to the limit.
    variables.define(
        "guaranteed",
        format!(
            "variables.others.all(container, ['cpu', 'memory'].all(resource, {limited}\n  \
             && container.?resources.?requests[?resource].optMap(request, quantity(request).compareTo(quantity('0')) == 0\n  \
             || quantity(request).compareTo(quantity(container.resources.limits[resource])) == 0).orValue(true)))",
            limited = limited("resource")
        ),
    );
    let all_limited = format!("variables.others.all(container, {})", limited("'cpu'"));
    variables.define("cpuLimited", all_limited);
    variables.define(
        "cpuIfGuaranteed",
        format!(
            "variables.chartCpuLimit != '' ? variables.chartCpuLimit : {}",
            larger("variables.chartCpuRequest", GUARANTEED_CPU)
        ),
    );
    variables.define(
        "cpuLimitIfUnset",
        format!("variables.chartCpuLimit != '' ? variables.chartCpuLimit : variables.cpuLimited ? '{CPU_LIMIT}' : ''"),
    );
    amounts(variables, "cpu", "variables.chartCpuRequest");
    let limit = memory_limit(Layout::default().bytes);
    variables.define("memoryIfGuaranteed", larger("variables.chartMemoryRequest", &limit));
    variables.define("memoryLimitIfUnset", format!("'{limit}'"));
    amounts(variables, "memory", "variables.chartMemoryRequest");
    let both = |part: &str| {
        let member = |resource| format!("?'{resource}': optional.ofNonZeroValue(variables.{resource}{part})");
        format!("optional.ofNonZeroValue({{{}, {}}})", member("cpu"), member("memory"))
    };
    variables.define("resources", format!("{{?'requests': {},\n  ?'limits': {}}}", both("Request"), both("Limit")));
}

/// Returns an expression that is true if a container has a limit on a resource.
pub(super) fn limited(resource: &str) -> String {
    format!(
        "container.?resources.?limits[?{resource}].optMap(limit, quantity(limit).isGreaterThan(quantity('0'))).orValue(false)"
    )
}

/// Returns the expression of the larger amount: that of the first expression, or the second one.
fn larger(expression: &str, amount: &str) -> String {
    format!("quantity({expression}).isGreaterThan(quantity('{amount}')) ? {expression} : '{amount}'")
}

/// Defines request and limit of one resource; an empty string means none. In a pod with pod-level resources they are
/// the amounts that annotations set; in a Guaranteed pod both are equal unless annotations set both; in other pods they
/// are the defaults, adjusted so that the request does not exceed the limit.
fn amounts(variables: &mut Variables, resource: &str, request: &str) {
    let (wanted, most) = (format!("variables.{resource}RequestChosen"), format!("variables.{resource}LimitChosen"));
    let (written, limit) = (format!("variables.{resource}Request"), format!("variables.{resource}LimitIfUnset"));
    let guaranteed = format!("variables.{resource}IfGuaranteed");
    variables.define(
        &format!("{resource}Request"),
        format!(
            "variables.podLevel ? {wanted}.orValue('') : variables.guaranteed ? {wanted}.or({most}).orValue({guaranteed})\n  \
             : {wanted}.orValue({most}.optMap(limit, quantity({request}).isGreaterThan(quantity(limit)) ? limit : {request}).orValue({request}))"
        ),
    );
    variables.define(
        &format!("{resource}Limit"),
        format!(
            "variables.podLevel ? {most}.orValue('') : variables.guaranteed ? {most}.or({wanted}).orValue({guaranteed})\n  \
             : {most}.orValue({limit} == '' ? '' : quantity({written}).isGreaterThan(quantity({limit})) ? {written} : {limit})"
        ),
    );
}
